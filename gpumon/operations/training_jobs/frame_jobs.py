"""Jobs of a frame alone, for recordings and other hosts: processes with the same user and command line are one job."""

from collections.abc import Sequence
from typing import Final

from gpumon.core.model import Device, Frame, Process
from gpumon.core.problems import Problem, ProblemCode
from gpumon.operations.program_name import program_name
from gpumon.operations.training_jobs.report import RankGpu, RankReport, TrainingJobReport, TrainingJobState

FRAME_ONLY: Final = Problem(
    ProblemCode.NOT_READ,
    "A recording or another host shows processes alone: ranks, steps and verdicts are known on the host of the job.",
    "On that host: gpumon jobs",
)
_HEADLINE: Final = "Processes with the same user and command line."


def frame_jobs(frame: Frame) -> tuple[TrainingJobReport, ...]:
    """The jobs of a frame, those with the most processes first."""
    groups: dict[tuple[str, str], dict[int, list[tuple[Device, Process]]]] = {}
    for device in frame.devices:
        for process in device.processes or ():
            if process.command is not None and process.computes:
                processes = groups.setdefault((process.user or "", process.command), {})
                processes.setdefault(process.pid, []).append((device, process))
    reports = (_report(user, command, list(processes.values())) for (user, command), processes in groups.items())
    return tuple(sorted(reports, key=lambda report: (-len(report.ranks), report.key)))


def _report(user: str, command: str, processes: Sequence[Sequence[tuple[Device, Process]]]) -> TrainingJobReport:
    ages = [use[0][1].age_seconds for use in processes]
    age = max((seconds for seconds in ages if seconds is not None), default=None)
    pid = min(use[0][1].pid for use in processes)
    return TrainingJobReport(
        key=f"{user}/{command}",
        id=f"pid {pid}",
        name=program_name(command),
        user=user,
        launcher="",
        world_size=None,
        state=TrainingJobState.UNKNOWN,
        since_seconds=age,
        headline=_HEADLINE,
        ranks=tuple(map(_rank, processes)),
        age_seconds=age,
        problems=(FRAME_ONLY,),
    )


def _rank(uses: Sequence[tuple[Device, Process]]) -> RankReport:
    memory = [process.memory_bytes for _, process in uses if process.memory_bytes is not None]
    activity = [process.sm_percent for _, process in uses if process.sm_percent is not None]
    return RankReport(
        rank=None,
        host="",
        pid=uses[0][1].pid,
        gpus=tuple(RankGpu(device.label, device.uuid) for device, _ in uses),
        memory_bytes=sum(memory) if memory else None,
        sm_percent=sum(activity) / len(activity) if activity else None,
        process=uses[0][1],
    )
