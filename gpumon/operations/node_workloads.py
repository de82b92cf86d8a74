"""Short workloads on the GPUs of a node that are free: whether each computes correctly and as fast as the others."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpumon.core.device_use import is_empty
from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.problems import CommandError
from gpumon.health.checks import Check, CheckResult, skip
from gpumon.health.doctor.check import gpus_text
from gpumon.health.doctor.siblings import performance
from gpumon.operations.gpu_processes import OtherProcess
from gpumon.operations.runs import FRAME_SECONDS, HeadlessRuns
from gpumon.operations.workload import WorkloadRun
from gpumon.streams.live import LiveStream
from gpumon.workload_runs.catalogue import RunRequest, load_catalogue
from gpumon.workload_runs.interpreter import find_interpreter
from gpumon.workload_runs.parameters import chosen_values
from gpumon.workload_runs.protocol import RunEvent, VerdictKind

_LIMIT_SECONDS: Final = 25.0
_NO_GPU_FREE: Final = "Every GPU is in use; --force runs workloads on them nevertheless."


class _Silent:
    """Prints nothing, and lets a workload start where the user has forced it, or where no other process is.

    Attributes:
        refused: The workloads that did not start, because a process had come to their GPU.
    """

    def __init__(self, *, force: bool) -> None:
        self._force = force
        self.refused: list[WorkloadRun] = []

    def on_event(self, run: WorkloadRun, event: RunEvent) -> None:
        """Print nothing."""

    def on_tick(self, runs: Sequence[WorkloadRun]) -> None:
        """Print nothing."""

    def confirm_start(self, run: WorkloadRun, others: Sequence[OtherProcess]) -> bool:
        """Whether the workload may start."""
        if others and not self._force:
            self.refused.append(run)
            return False
        return True


def measured(
    frame: Frame, workloads: Mapping[str, Mapping[str, str]], *, force: bool, python: str | None
) -> Iterator[Check]:
    """The checks that need workloads, in turn.

    ``force`` uses GPUs that are in use, too.
    """
    usable = [
        device
        for device in frame.gpus
        if device.cuda_index is not None and device.state is DeviceState.OK and (force or is_empty(device))
    ]
    in_use = [device for device in frame.gpus if device not in usable]
    for name, settings in workloads.items():
        check_id = f"gpu.{name}"
        if not usable:
            yield skip(_NO_GPU_FREE).named(check_id)
            continue
        try:
            runs = _run(name, settings, usable, force=force, python=python)
        except CommandError as error:
            yield skip(str(error.problem)).named(check_id)
            continue
        check = _judged(runs).named(check_id)
        skipped = f"; {gpus_text(in_use)} in use or not responding, not tested" if in_use else ""
        yield check._replace(detail=f"{check.detail}{skipped}")


def _run(
    name: str, settings: Mapping[str, str], devices: Sequence[Device], *, force: bool, python: str | None
) -> dict[int, WorkloadRun]:
    """Runs a workload on all devices at the same time; returns the runs that started by index of the GPU.

    Raises:
        CommandError: No interpreter has torch.
    """
    info = load_catalogue().get(name)
    assert info is not None
    interpreter = find_interpreter(python).path
    runs = {}
    for device in devices:
        ordinal = f"cuda:{device.cuda_index}"
        values = chosen_values(info.parameters, ordinal, settings)
        runs[device.index] = WorkloadRun(RunRequest(info, ordinal, values, interpreter, limit_seconds=_LIMIT_SECONDS))
    stream = LiveStream(FRAME_SECONDS)
    stream.start()
    output = _Silent(force=force)
    HeadlessRuns(list(runs.values()), stream, output).run()
    return {index: run for index, run in runs.items() if run not in output.refused}


def _judged(runs: dict[int, WorkloadRun]) -> CheckResult:
    results, failures, unsupported = {}, [], []
    for index, run in runs.items():
        result, reason = run.state.result, run.state.unsupported_reason
        if reason is not None:
            unsupported.append(reason)
        elif result is None:
            failures.append(f"GPU {index}: the workload ended without a result.")
        elif result.verdict not in {VerdictKind.OK, VerdictKind.WARN}:
            failures.append(f"GPU {index}: {result.why}")
        else:
            results[index] = result.measurements
    if not failures and not results:
        return skip(unsupported[0] if unsupported else _NO_GPU_FREE)
    return performance(results, failures)
