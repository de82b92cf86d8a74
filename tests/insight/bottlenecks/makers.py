"""Stacks, observations and evidence for the tests of causes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpumon.core.stacks import SampledStack, StackFrame, StackSamples
from gpumon.core.steps import StepObservation, StepRecord
from gpumon.insight.bottlenecks.slowness_evidence import (
    GpuEvidence,
    HostEvidence,
    SlownessEvidence,
    StepAccount,
    StepPart,
    StepShare,
    TraceEvidence,
)

PACKAGES = "/venv/lib/python3.11/site-packages/"
STANDARD = "/usr/lib/python3.11/"
PROGRAM = "/home/ana/train.py"
MAIN = StackFrame(PROGRAM, 10, "<module>")
Names = str | tuple[str, str] | tuple[str, str, int]


def stack(*frames: Names, main: StackFrame | None = MAIN) -> tuple[StackFrame, ...]:
    """A stack, innermost first.

    ``("torch/nn/functional.py", "linear")`` is a frame of a package, ``("std:queue.py", "get")`` one of the standard
    library, ``("program:data.py", "load")`` one of the program.
    """
    result = []
    for item in frames:
        name, function, line = (item, "f", 1) if isinstance(item, str) else (*item, 1)[:3]
        kind, _, path = str(name).rpartition(":")
        folder = {"std": STANDARD, "program": "/home/ana/", "": PACKAGES}[kind]
        result.append(StackFrame(f"{folder}{path}", int(line), str(function)))
    return (*result, *([] if main is None else [main]))


MODULE = ("torch/nn/modules/module.py", "_call_impl")
FORWARD_STACK = stack(("torch/nn/modules/linear.py", "forward"), MODULE)
BACKWARD_STACK = stack(("torch/autograd/graph.py", "_engine_run_backward"), ("torch/_tensor.py", "backward"))
OPTIMIZER_STACK = stack(("torch/optim/sgd.py", "_single_tensor_sgd"), ("torch/optim/optimizer.py", "wrapper"))
DATA_STACK = stack(
    ("std:queue.py", "get"),
    ("torch/utils/data/dataloader.py", "_try_get_data"),
    ("torch/utils/data/dataloader.py", "__next__"),
)
WORK = ((FORWARD_STACK, 40), (BACKWARD_STACK, 50), (OPTIMIZER_STACK, 10))


def sources(lines: Mapping[int, str]) -> "Lines":
    """The source lines of the program, by number."""
    return Lines(lines)


class Lines:
    """Reads lines of the program only."""

    def __init__(self, lines: Mapping[int, str]) -> None:
        self._lines = lines

    def __call__(self, file: str, line: int) -> str:
        return self._lines.get(line, "") if file == PROGRAM else ""


def observed(
    stacks: Sequence[tuple[tuple[StackFrame, ...], int]],
    steps: Sequence[tuple[float, float, float]] = ((0.1, 0.0, 0.0),) * 20,
    cpu_seconds: float | None = None,
) -> StepObservation:
    """An observation: stacks with counts, and steps with their duration, waits for data and garbage collection."""
    seconds = sum(step[0] for step in steps)
    end = 0.0
    records = []
    for duration, data, collection in steps:
        end += duration
        records.append(StepRecord(end, duration, data, collection))
    samples = StackSamples(
        seconds, sum(count for _, count in stacks), tuple(SampledStack(frames, count) for frames, count in stacks)
    )
    return StepObservation(
        samples,
        tuple(records),
        seconds if cpu_seconds is None else cpu_seconds,
        seconds if cpu_seconds is None else cpu_seconds,
    )


def evidence(
    shares: Mapping[str, float | StepShare],
    host: HostEvidence | None = None,
    gpu: GpuEvidence | None = None,
    trace: TraceEvidence | None = None,
    *,
    step: float = 0.1,
    account: StepAccount | None = None,
    **more: object,
) -> SlownessEvidence:
    """Evidence with an account of the median step: the classes in parts of the step; the rest is forward."""
    made = {
        name: share if isinstance(share, StepShare) else StepShare(name, share * step) for name, share in shares.items()
    }
    rest = step - sum(share.seconds for share in made.values())
    name = "gpu_work" if gpu is not None else "forward"
    if rest > 1e-9 and name not in made:
        made[name] = StepShare(name, rest)
    mean = step + sum(share.pause_seconds for share in made.values())
    base = account or StepAccount(step, mean, 20, 500, tuple(made.values()), is_traced=trace is not None)
    return replace(
        SlownessEvidence(base, host or HostEvidence(5.0, cpu_count=16, allowed_cores=16), gpu, trace),
        **more,  # type: ignore[arg-type]
    )


def part(name: str, seconds: float, line: str = "train.py:41", kind: str = "") -> StepPart:
    """A part of a class."""
    return StepPart(name, seconds, line, kind)
