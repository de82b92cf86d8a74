"""Makes the report on a training job: of this host from what is known of its ranks, or of a frame alone."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.core.collectives import FlightRecording, RecordedCollective
from gpumon.core.groups import grouped
from gpumon.core.model import Device, Frame, Process
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.ranks import HangKind, HangVerdict, RankEvidence
from gpumon.core.units import counted
from gpumon.distributed.environment import JobRank, RankVariables, TrainingJob, Workers
from gpumon.insight.hangs import lateness, line_of
from gpumon.operations.program_name import program_name
from gpumon.operations.training_jobs.report import (
    EXITED,
    HAS_PROBE,
    NO_PROBE,
    NO_STACKS,
    RUNNING,
    SLOWS,
    THIS_HOST,
    WAITS,
    RankGpu,
    RankReport,
    TrainingJobReport,
    TrainingJobState,
)
from gpumon.probe.attach import Attachability
from gpumon.probe.messages import Probe

_STARTING_SECONDS: Final = 60.0
_CALM: Final = frozenset({HangKind.STRAGGLER, HangKind.RUNNING, HangKind.SLOW, HangKind.FINISHED})
"""Kinds of verdicts on jobs without a rank that the others wait for."""


def workers_of(frame: Frame | None, probes: Mapping[int, Probe]) -> Workers:
    """The processes that compute on a GPU of this host, or in which a probe runs."""
    workers = {
        process.pid: RankVariables()
        for device in (() if frame is None else frame.devices)
        for process in device.processes or ()
        if process.start_ticks is not None and process.computes
    }
    for pid, probe in probes.items():
        if probe.connected:
            process = probe.process
            workers[pid] = RankVariables(process.rank, process.world_size, process.local_rank)
    return workers


class JobInputs(NamedTuple):
    """What a report is made of, in addition to the job.

    Attributes:
        frame: The newest frame of this host.
        probes: The probes of this host, by PID.
        evidence: What is known of its ranks.
        verdict: The verdict on it.
        age_seconds: Its age.
        lateness: How late the ranks call their collectives, by rank.
        attachable: Whether a probe can be loaded into a rank without one, or why not, by PID.
    """

    frame: Frame | None
    probes: Mapping[int, Probe]
    evidence: Sequence[RankEvidence]
    verdict: HangVerdict | None = None
    age_seconds: float | None = None
    lateness: Mapping[int, float] = MappingProxyType({})
    attachable: Mapping[int, Attachability] = MappingProxyType({})


def job_report(job: TrainingJob, inputs: JobInputs, now_monotonic: float) -> TrainingJobReport:
    """The report on a job of this host."""
    uses = _uses(inputs.frame, {rank.pid for rank in job.ranks})
    evidence = {item.pid: item for item in inputs.evidence}
    is_watched = any(item.progressed_monotonic is not None for item in inputs.evidence if not item.exited)
    verdict = inputs.verdict if is_watched else None
    inputs = inputs._replace(verdict=verdict, lateness=lateness(inputs.evidence))
    ranks = [
        _rank_report(rank, inputs, evidence.get(rank.pid), uses.get(rank.pid, []), now_monotonic) for rank in job.ranks
    ]
    ranks += [
        RankReport(rank.rank, THIS_HOST, rank.pid, state=EXITED, is_culprit=_is_culprit(rank, verdict))
        for rank in job.exited
    ]
    ranks.sort(key=lambda rank: (rank.rank is None, rank.rank or 0, rank.pid or 0))
    step_times = [rank.step_seconds for rank in ranks if rank.step_seconds is not None]
    state = _state(job, inputs)
    problems = []
    if job.ranks and not any(rank.pid in inputs.probes for rank in job.ranks):
        refusals = [item.stack_problem for item in inputs.evidence if item.stack_problem is not None]
        has_stacks = any(item.stack for item in inputs.evidence)
        problems.append(NO_PROBE if has_stacks or not refusals else _without_stacks(refusals[0], inputs.attachable))
    since = inputs.age_seconds if verdict is None or verdict.since_seconds is None else verdict.since_seconds
    return TrainingJobReport(
        key=job.key,
        id=job.id,
        name=program_name(job.command),
        user=job.user,
        launcher=job.launcher,
        world_size=job.world_size,
        state=state,
        since_seconds=since,
        headline=_headline(job, state, verdict),
        step_seconds=sorted(step_times)[len(step_times) // 2] if step_times else None,
        ranks=tuple(ranks),
        verdict=verdict,
        age_seconds=inputs.age_seconds,
        problems=tuple(problems),
    )


def _without_stacks(refusal: Problem, attachable: Mapping[int, Attachability]) -> Problem:
    """That nothing but the kernel, the driver and NCCL shows the job, and why; stacks need the rights of the probe."""
    remedies = (state.problem.remedy for state in attachable.values() if state.problem is not None)
    remedy = refusal.remedy or next(remedies, NO_PROBE.remedy)
    return Problem(refusal.code, NO_STACKS.format(refusal.reason), remedy)


def _word(state: Attachability | None) -> str:
    return "" if state is None else state.word


def _uses(frame: Frame | None, pids: Iterable[int]) -> Mapping[int, list[tuple[Device, Process]]]:
    """The devices that some processes use."""
    wanted = set(pids)
    return grouped(
        (process.pid, (device, process))
        for device in (() if frame is None else frame.devices)
        for process in device.processes or ()
        if process.pid in wanted
    )


def _rank_report(
    rank: JobRank,
    inputs: JobInputs,
    evidence: RankEvidence | None,
    uses: Sequence[tuple[Device, Process]],
    now_monotonic: float,
) -> RankReport:
    probe = inputs.probes.get(rank.pid)
    progress = None if probe is None or probe.reading is None else probe.reading.training
    memory = [process.memory_bytes for _, process in uses if process.memory_bytes is not None]
    activity = [process.sm_percent for _, process in uses if process.sm_percent is not None]
    progressed = None if evidence is None else evidence.progressed_monotonic
    state = _rank_state(rank, evidence, inputs.verdict)
    is_moving = state in {RUNNING, SLOWS} or progressed is None
    return RankReport(
        rank=rank.rank,
        host=THIS_HOST,
        pid=rank.pid,
        gpus=tuple(RankGpu(device.label, device.uuid) for device, _ in uses),
        state=state,
        since_seconds=None if is_moving or progressed is None else max(0.0, now_monotonic - progressed),
        steps_count=None if progress is None else progress.steps_count,
        step_seconds=None if progress is None else progress.step_seconds,
        late_seconds=None if rank.rank is None else inputs.lateness.get(rank.rank),
        collective=None if evidence is None else last_collective(evidence.recording),
        line="" if evidence is None else line_of(evidence),
        memory_bytes=sum(memory) if memory else None,
        sm_percent=sum(activity) / len(activity) if activity else None,
        process=uses[0][1] if uses else None,
        is_culprit=_is_culprit(rank, inputs.verdict),
        probe=HAS_PROBE if probe is not None and probe.connected else _word(inputs.attachable.get(rank.pid)),
    )


def _is_culprit(rank: JobRank, verdict: HangVerdict | None) -> bool:
    names = verdict is not None and (verdict.is_hang or verdict.kind is HangKind.STRAGGLER)
    return names and verdict is not None and rank.rank is not None and verdict.rank == rank.rank


def _rank_state(rank: JobRank, evidence: RankEvidence | None, verdict: HangVerdict | None) -> str:
    """What a rank does, in a few words."""
    if evidence is not None and evidence.state_code in {"T", "t"}:
        return "stopped"
    if verdict is not None and _is_culprit(rank, verdict):
        return SLOWS if verdict.kind is HangKind.STRAGGLER else str(verdict.kind.value).replace("_", " ")
    if verdict is not None and verdict.kind not in _CALM:
        if rank.rank in verdict.waiting_ranks:
            return WAITS
        if verdict.is_hang or verdict.kind is HangKind.UNDECIDED:
            return "no progress"
    if evidence is not None and evidence.progress is not None:
        waits_for_data = evidence.progress.waiting_for_data_since_monotonic is not None
        return "waits for data" if waits_for_data else RUNNING
    is_watched = evidence is not None and evidence.progressed_monotonic is not None
    return RUNNING if is_watched else ""


def _state(job: TrainingJob, inputs: JobInputs) -> TrainingJobState:
    verdict = inputs.verdict
    if not job.ranks:
        return TrainingJobState.FINISHED
    if verdict is not None:
        if verdict.is_hang:
            return TrainingJobState.HANGING
        by_kind = {
            HangKind.WAITING_FOR_DATA: TrainingJobState.WAITING_FOR_DATA,
            HangKind.UNDECIDED: TrainingJobState.UNDECIDED,
            HangKind.FINISHED: TrainingJobState.FINISHED,
            HangKind.SLOW: TrainingJobState.SLOW,
            HangKind.STRAGGLER: TrainingJobState.SLOW,
        }
        return by_kind.get(verdict.kind, TrainingJobState.RUNNING)
    if inputs.age_seconds is not None and inputs.age_seconds < _STARTING_SECONDS:
        return TrainingJobState.STARTING
    return TrainingJobState.UNKNOWN


def _headline(job: TrainingJob, state: TrainingJobState, verdict: HangVerdict | None) -> str:
    if verdict is not None and verdict.summary:
        return verdict.summary
    if state is TrainingJobState.FINISHED:
        return f"All {counted(len(job.exited), 'rank')} of this host have ended."
    if state is TrainingJobState.STARTING:
        return "The job was started less than a minute ago."
    return "Nothing reports the progress of this job."


def last_collective(recording: FlightRecording | None) -> RecordedCollective | None:
    """The collective that a rank has entered last."""
    if recording is None or not recording.collectives:
        return None
    return max(recording.collectives, key=lambda entry: (entry.created_seconds or 0.0, entry.sequence))


FRAME_ONLY: Final = Problem(
    ProblemCode.NOT_READ,
    "A recording or another host shows processes alone: ranks, steps and verdicts are known on the host of the job.",
    "On that host: gpumon jobs",
)


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
        headline="Processes with the same user and command line.",
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
