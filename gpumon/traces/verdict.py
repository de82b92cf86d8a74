"""The verdict on a step: which classes cost time that can be saved, and how short the step can become at best."""

from dataclasses import dataclass
from typing import Final

from gpumon.core.step_classes import COMMUNICATION, COPIES, DATA, HOST, IDLE, LABELS, MEMORY, SIMT, SYNC
from gpumon.core.units import bytes_text, counted, short_time_text
from gpumon.traces.model import ClassTime, Trace

_MIN_SHARES: Final = {
    DATA: 0.05,
    SYNC: 0.05,
    COPIES: 0.05,
    HOST: 0.10,
    COMMUNICATION: 0.10,
    SIMT: 0.10,
    MEMORY: 0.40,
}
"""From which part of the step on a class is a cause; some memory-bound compute is part of every model."""
_MAX_UNKNOWN_SHARE: Final = 0.20
_SMALL_KERNEL_NS: Final = 10_000
_MAIN_PART: Final = 0.3
_EXPERIMENTS: Final = {
    DATA: "Train on one batch that stays on the GPU; if that is faster, give the DataLoader more workers.",
    SYNC: "Read values from the GPU every 100 steps instead of each step: .item(), .cpu(), print of a tensor.",
    COPIES: "Copy from pinned memory with non_blocking=True, and prefetch the next batch.",
    COMMUNICATION: "Train on one GPU with the same batch size per GPU; compare the step times.",
    SIMT: "Set torch.set_float32_matmul_precision('high'), or use autocast with bfloat16.",
    MEMORY: "Wrap the model in torch.compile, which fuses such kernels.",
    HOST: "Wrap the model in torch.compile(mode='reduce-overhead'), or double the batch size.",
}


@dataclass(frozen=True)
class StepCause:
    """A class that costs time which can be saved.

    Attributes:
        name: The class.
        time_ns: Its time in the median step.
        share: Its part of the step.
        bound_ns: The shortest duration of the step without this cause; other causes may then take longer.
        evidence: What was measured, in a sentence.
        line: The line of the program, where the trace has stacks.
        experiment: What would prove it, in a sentence.
    """

    name: str
    time_ns: int
    share: float
    bound_ns: int
    evidence: str
    line: str
    experiment: str


@dataclass(frozen=True)
class StepVerdict:
    """The causes of a slow step, the most expensive first.

    Attributes:
        summary: The verdict in a sentence.
        is_decided: Whether the trace allows a verdict.
        causes: The causes.
    """

    summary: str
    is_decided: bool
    causes: tuple[StepCause, ...] = ()


def judge(trace: Trace) -> StepVerdict:
    """The verdict on the median step of a trace; undecided if the trace does not suffice for one."""
    if trace.problems:
        return StepVerdict(f"No verdict. {' '.join(trace.problems)}", is_decided=False)
    step = trace.step_ns
    causes = sorted(
        (
            _cause(trace, item)
            for item in trace.classes
            if item.name in _MIN_SHARES and item.time_ns >= _MIN_SHARES[item.name] * step
        ),
        key=lambda cause: -cause.time_ns,
    )
    idle = trace.class_time(IDLE).time_ns
    if idle >= _MAX_UNKNOWN_SHARE * step and (not causes or idle > causes[0].time_ns):
        summary = (
            f"Undecided: the GPU was idle for {short_time_text(idle / 1e9)} of {short_time_text(step / 1e9)} "
            "without a reason that the trace shows."
        )
        return StepVerdict(summary, is_decided=False, causes=tuple(causes))
    if not causes:
        busy = step - sum(trace.class_time(name).time_ns for name in (DATA, SYNC, HOST, IDLE))
        summary = f"No cause found that costs much: the GPU works in {busy / step:.0%} of the step."
        return StepVerdict(summary, is_decided=True)
    first = causes[0]
    summary = (
        f"{LABELS[first.name].capitalize()}: without it, a step takes {short_time_text(first.bound_ns / 1e9)} at best "
        f"instead of {short_time_text(step / 1e9)}."
    )
    return StepVerdict(summary, is_decided=True, causes=tuple(causes))


def _cause(trace: Trace, item: ClassTime) -> StepCause:
    step = trace.step_ns
    evidence = f"{short_time_text(item.time_ns / 1e9)} of {short_time_text(step / 1e9)} ({item.time_ns / step:.0%})"
    reason = _host_reason(trace, item) if item.name == HOST else _top_reason(item)
    line = next((part.line for part in item.top if part.line), "")
    experiment = _EXPERIMENTS[item.name]
    if item.name == HOST and reason.startswith("garbage"):
        experiment = "Call gc.freeze() before the loop, or gc.disable() and gc.collect() every 1,000 steps."
    return StepCause(
        item.name, item.time_ns, item.time_ns / step, step - item.time_ns, f"{evidence}: {reason}.", line, experiment
    )


def _top_reason(item: ClassTime) -> str:
    top = item.top[0]
    size = "" if top.size_bytes is None else f" of {bytes_text(top.size_bytes)}"
    return f"mostly {top.name}{size}, {counted(top.count, 'time')}"


def _host_reason(trace: Trace, item: ClassTime) -> str:
    """Why the host was late: garbage collection, kernels that are shorter than their launch, or Python."""
    top = item.top[0]
    collecting = sum(part.time_ns for part in item.top if "gc" in part.name.lower().split())
    if collecting >= _MAIN_PART * item.time_ns:
        return f"garbage collection, {short_time_text(collecting / 1e9)}"
    median = trace.median_kernel_ns
    if median is not None and median < _SMALL_KERNEL_NS:
        return (
            f"{counted(trace.kernels, 'kernel')} with a median of {short_time_text(median / 1e9)}, "
            "which takes less time than a launch"
        )
    return f"mostly {top.name}"
