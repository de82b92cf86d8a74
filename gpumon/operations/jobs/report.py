"""The report on a training job: one row for the job, and one for each of its ranks."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.core.collectives import FlightRecording, RecordedCollective
from gpumon.core.model import Device, Frame, Process, ProcessKind
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.ranks import HangKind, HangVerdict, RankEvidence
from gpumon.core.units import counted
from gpumon.diagnosis.hangs import lateness, line_of
from gpumon.distributed.environment import RankVariables
from gpumon.distributed.model import JobRank, TrainingJob, Workers
from gpumon.operations.program_name import program_name
from gpumon.probe.messages import Probe

THIS_HOST: Final = ""
"""Host of the ranks of this host."""
_STARTING_SECONDS: Final = 60.0
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_START: Final = 8
NO_PROBE: Final = Problem(
    ProblemCode.NOT_READ,
    "Steps, collectives and lines of code come from a probe, and no rank of this job has one.",
    "Start the job with: gpumon watch COMMAND",
)
HIDDEN: Final = Problem(
    ProblemCode.NO_PERMISSION, "The job belongs to another user: its ranks are known as far as /proc shows them."
)


class TrainingJobState(str, Enum):
    """What a job does. The values are those of ``gpumon jobs --json``."""

    RUNNING = "running"
    SLOW = "slow"
    """It makes progress, and a rank slows the others, or a step takes ten times as long as before."""
    WAITING_FOR_DATA = "waiting_for_data"
    HANGING = "hanging"
    UNDECIDED = "undecided"
    """It makes no progress, and the evidence does not show why."""
    FINISHED = "finished"
    STARTING = "starting"
    UNKNOWN = "unknown"
    """Nothing reports whether it makes progress."""


class RankGpu(NamedTuple):
    """A GPU that a rank uses.

    Attributes:
        label: Its label, such as ``0`` or ``0:1`` for a MIG device.
        uuid: NVML's UUID.
    """

    label: str
    uuid: str | None = None


@dataclass(frozen=True, slots=True)
class RankReport:
    """A rank of a job.

    Attributes:
        rank: Its rank among all processes of the job; None if unknown.
        host: Its host; `THIS_HOST` for this one.
        pid: Its PID on that host.
        gpus: The GPUs that it uses.
        state: What it does, in a few words: ``running``, ``waits``, ``not entered``, ``exited``.
        since_seconds: For how long it has made no progress; None while it does, or if that is unknown.
        steps_count: Number of steps that its probe has seen.
        step_seconds: Median duration of its latest steps.
        late_seconds: How long after the first rank it calls the same collective (median); None if unknown.
        collective: The last collective that it has entered.
        line: Where its main thread stands in the user's code, such as ``train.py:214``.
        memory_bytes: Device memory that it uses.
        sm_percent: Mean share of time in which it ran kernels on its GPUs.
        process: Its entry in the driver's list; None without a GPU.
        is_culprit: Whether the verdict names it as the reason.
    """

    rank: int | None
    host: str
    pid: int | None
    gpus: tuple[RankGpu, ...] = ()
    state: str = ""
    since_seconds: float | None = None
    steps_count: int | None = None
    step_seconds: float | None = None
    late_seconds: float | None = None
    collective: RecordedCollective | None = None
    line: str = ""
    memory_bytes: int | None = None
    sm_percent: float | None = None
    process: Process | None = None
    is_culprit: bool = False

    @property
    def key(self) -> str:
        """Identifies the rank within its job."""
        return f"{self.host}/{self.pid}/{self.rank}"


@dataclass(frozen=True, slots=True)
class TrainingJobReport:
    """A training job.

    Attributes:
        key: Identifies the job over time.
        id: What its ranks have in common on all hosts.
        name: Short name of what it runs.
        user: Login name.
        launcher: What started its ranks.
        world_size: Number of ranks on all hosts; None if unknown.
        state: What it does.
        since_seconds: For how long it has been in that state, as far as known.
        headline: One sentence: the verdict, or what the job does.
        step_seconds: Median of the step times of its ranks.
        ranks: The ranks that are known, by rank.
        verdict: Whether it hangs; None if nothing reports its progress.
        age_seconds: Time since its oldest rank was started.
        problems: Why values are missing.
    """

    key: str
    id: str
    name: str
    user: str
    launcher: str
    world_size: int | None
    state: TrainingJobState
    since_seconds: float | None = None
    headline: str = ""
    step_seconds: float | None = None
    ranks: tuple[RankReport, ...] = ()
    verdict: HangVerdict | None = None
    age_seconds: float | None = None
    problems: tuple[Problem, ...] = field(default=())

    @property
    def short_id(self) -> str:
        """The id, without the end of a UUID, which torchrun makes up for a job on one host."""
        return self.id[:_UUID_START] if _UUID.fullmatch(self.id) else self.id

    @property
    def running_ranks(self) -> int:
        """Number of ranks on this host that have not ended."""
        return sum(rank.state != EXITED and rank.host == THIS_HOST for rank in self.ranks)

    @property
    def gpus(self) -> tuple[RankGpu, ...]:
        """The GPUs of all ranks, each once."""
        return tuple(dict.fromkeys(gpu for rank in self.ranks for gpu in rank.gpus))

    @property
    def steps_per_second(self) -> float | None:
        """The inverse of the step time, while the job makes progress."""
        is_moving = self.state in {TrainingJobState.RUNNING, TrainingJobState.SLOW, TrainingJobState.WAITING_FOR_DATA}
        return 1 / self.step_seconds if self.step_seconds and is_moving else None

    @property
    def memory_bytes(self) -> int | None:
        """Device memory of all ranks."""
        known = [rank.memory_bytes for rank in self.ranks if rank.memory_bytes is not None]
        return sum(known) if known else None

    @property
    def sm_percent(self) -> float | None:
        """Mean of the ranks."""
        known = [rank.sm_percent for rank in self.ranks if rank.sm_percent is not None]
        return sum(known) / len(known) if known else None


EXITED: Final = "exited"
RUNNING: Final = "running"
SLOWS: Final = "slows others"
WAITS: Final = "waits"
_CALM: Final = frozenset({HangKind.STRAGGLER, HangKind.RUNNING, HangKind.SLOW, HangKind.FINISHED})
"""Kinds of verdicts on jobs without a rank that the others wait for."""


def workers_of(frame: Frame | None, probes: Mapping[int, Probe]) -> Workers:
    """The processes that compute on a GPU of this host, or in which a probe runs.

    Args:
        frame: The newest frame of this host.
        probes: The probes of this host.
    """
    workers = {
        process.pid: RankVariables()
        for device in (() if frame is None else frame.devices)
        for process in device.processes or ()
        if process.start_ticks is not None and process.kinds != (ProcessKind.GRAPHICS,)
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
    """

    frame: Frame | None
    probes: Mapping[int, Probe]
    evidence: Sequence[RankEvidence]
    verdict: HangVerdict | None = None
    age_seconds: float | None = None
    lateness: Mapping[int, float] = MappingProxyType({})


def job_report(job: TrainingJob, inputs: JobInputs, now_monotonic: float) -> TrainingJobReport:
    """The report on a job of this host.

    Args:
        job: Its processes.
        inputs: What is known about them.
        now_monotonic: Monotonic seconds.
    """
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
        problems.append(NO_PROBE)
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


def _uses(frame: Frame | None, pids: Iterable[int]) -> Mapping[int, list[tuple[Device, Process]]]:
    """The devices that some processes use."""
    wanted = set(pids)
    result: dict[int, list[tuple[Device, Process]]] = {}
    for device in () if frame is None else frame.devices:
        for process in device.processes or ():
            if process.pid in wanted:
                result.setdefault(process.pid, []).append((device, process))
    return result


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


def boot_age_seconds(start_ticks: int, ticks_per_second: int) -> float:
    """The age of a process.

    Args:
        start_ticks: Its start time in clock ticks since boot.
        ticks_per_second: Clock ticks per second.
    """
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / ticks_per_second)
