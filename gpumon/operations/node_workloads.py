"""Workloads on the GPUs of a node that are free: whether each computes right, as fast as the others, and stays so."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gpumon.core.device_use import is_empty
from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.problems import CommandError
from gpumon.health.checks import Check, CheckResult, skip
from gpumon.health.doctor.check import gpus_text
from gpumon.health.doctor.rules import NodeWorkload
from gpumon.health.doctor.siblings import performance
from gpumon.operations.device_selection import VISIBLE
from gpumon.operations.gpu_processes import OtherProcess
from gpumon.operations.runs import FRAME_SECONDS, HeadlessRuns
from gpumon.operations.workload import WorkloadRun
from gpumon.streams.live import LiveStream
from gpumon.workload_runs.catalogue import RunRequest, load_catalogue
from gpumon.workload_runs.interpreter import find_interpreter
from gpumon.workload_runs.parameters import chosen_values
from gpumon.workload_runs.protocol import RunEvent, VerdictKind

_LIMIT_SECONDS: Final = 25.0
_JOINT_LIMIT_SECONDS: Final = 90.0
"""NCCL's start between eight GPUs takes up to half a minute."""
_START_SECONDS: Final = 20.0
"""For importing torch and the start of CUDA on all GPUs, which is not part of a workload's duration."""
_MIN_LOAD_SECONDS: Final = 10.0
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
    frame: Frame, workloads: Sequence[NodeWorkload], deadline: float, *, force: bool, python: str | None
) -> Iterator[Check]:
    """The checks that need workloads, in turn.

    Args:
        frame: The GPUs.
        workloads: What is run.
        deadline: When the load that fills the time has to have ended, monotonic seconds.
        force: Whether GPUs that are in use are used, too.
        python: The interpreter that has torch, or None to search for one.
    """
    usable = [
        device
        for device in frame.gpus
        if device.cuda_index is not None and device.state is DeviceState.OK and (force or is_empty(device))
    ]
    in_use = [device for device in frame.gpus if device not in usable]
    skipped = f"; {gpus_text(in_use)} in use or not responding, not tested" if in_use else ""
    for workload in workloads:
        left = deadline - time.monotonic() - _START_SECONDS
        reason = "" if usable else _NO_GPU_FREE
        if workload.is_joint and len(usable) == 1:
            reason = "Fewer than two GPUs are free."
        elif workload.fills_time and left < _MIN_LOAD_SECONDS:
            reason = "Too little time is left for it; choose a longer --max-time."
        if reason:
            yield skip(reason).named(workload.check_id)
            continue
        if workload.fills_time:
            workload = workload._replace(settings={**workload.settings, "duration": f"{left:.0f}"})  # noqa: PLW2901
        try:
            runs = _run(workload, usable, left + _START_SECONDS, force=force, python=python)
        except CommandError as error:
            yield skip(str(error.problem)).named(workload.check_id)
            continue
        check = _judged(workload, runs).named(workload.check_id)
        yield check._replace(detail=f"{check.detail}{skipped}")


def _run(
    workload: NodeWorkload, devices: Sequence[Device], seconds_left: float, *, force: bool, python: str | None
) -> dict[str, WorkloadRun]:
    """Runs a workload on all devices at the same time; returns the runs that started by the names of their GPUs.

    Raises:
        CommandError: No interpreter has torch.
    """
    info = load_catalogue().get(workload.name)
    assert info is not None
    interpreter = find_interpreter(python).path
    groups = [list(devices)] if workload.is_joint else [[device] for device in devices]
    limit = _JOINT_LIMIT_SECONDS if workload.is_joint else _LIMIT_SECONDS
    runs = {}
    for group in groups:
        ordinal = "cuda:0" if workload.is_joint else f"cuda:{group[0].cuda_index}"
        visible = {VISIBLE: ",".join(device.uuid or "" for device in group)} if workload.is_joint else {}
        request = RunRequest(
            info,
            ordinal,
            chosen_values(info.parameters, ordinal, workload.settings),
            interpreter,
            environment=visible,
            limit_seconds=seconds_left if workload.fills_time else limit,
        )
        runs[gpus_text(group)] = WorkloadRun(request)
    stream = LiveStream(FRAME_SECONDS)
    stream.start()
    output = _Silent(force=force)
    HeadlessRuns(list(runs.values()), stream, output).run()
    return {name: run for name, run in runs.items() if run not in output.refused}


def _judged(workload: NodeWorkload, runs: Mapping[str, WorkloadRun]) -> CheckResult:
    results, failures, warnings, unsupported = {}, [], [], []
    for name, run in runs.items():
        result, reason = run.state.result, run.state.unsupported_reason
        if reason is not None:
            unsupported.append(reason)
        elif result is None:
            failures.append(f"{name}: the workload ended without a result.")
        elif result.verdict not in {VerdictKind.OK, VerdictKind.WARN}:
            failures.append(f"{name}: {result.why}")
        else:
            results[name] = result.measurements
            if workload.has_warnings and result.verdict is VerdictKind.WARN:
                warnings.append(f"{name}: {result.why}")
    if not failures and not results:
        return skip(unsupported[0] if unsupported else _NO_GPU_FREE)
    return performance(results, failures, warnings)
