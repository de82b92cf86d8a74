"""The report on a training job: one row for the job, and one for each of its ranks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from gpumon.core.collectives import RecordedCollective
from gpumon.core.model import Process
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.ranks import HangVerdict

THIS_HOST: Final = ""
"""Host of the ranks of this host."""
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_START: Final = 8
HAS_PROBE: Final = "probe"
NO_PROBE: Final = Problem(
    ProblemCode.NOT_READ,
    "No rank has a probe: py-spy reads lines of code from outside; steps and numbers of collectives are unknown.",
    "Load the probe with gpumon attach, or start the job with gpumon watch.",
)
NO_STACKS: Final = (
    "No rank has a probe, and stacks cannot be read from outside, so that all that is known comes from NVML, NCCL and "
    "/proc. {}"
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
        probe: Whether it has a probe, can get one, or why not, in a few words; empty if unknown.
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
    probe: str = ""

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
        """Number of ranks on this host that have not ended; on all hosts in the merged report of several."""
        own = [rank for rank in self.ranks if rank.host == THIS_HOST] or self.ranks
        return sum(rank.state != EXITED for rank in own)

    @property
    def probe(self) -> str:
        """Whether its ranks have a probe, or the first of them can get one, or why not; empty if unknown."""
        words = [rank.probe for rank in self.ranks if rank.probe]
        probed = words.count(HAS_PROBE)
        if probed and probed < len(words):
            return f"{probed}/{len(words)} {HAS_PROBE}"
        return next(iter(words), "")

    @property
    def title(self) -> str:
        """The job in a few words."""
        return f"{self.name} of {self.user} ({self.short_id})"

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


SCHEMA: Final = 1


def jobs_document(
    reports: Sequence[TrainingJobReport], host: str, problems: Sequence[Problem] = ()
) -> Mapping[str, Any]:
    """All jobs."""
    return {
        "schema": SCHEMA,
        "host": host,
        "jobs": [_job(report, host) for report in reports],
        "problems": [_problem(problem) for problem in problems],
    }


def _job(report: TrainingJobReport, host: str) -> Mapping[str, Any]:
    return {
        "id": report.id,
        "name": report.name,
        "user": report.user,
        "launcher": report.launcher or None,
        "world_size": report.world_size,
        "state": report.state.value,
        "since_seconds": _rounded(report.since_seconds, 1),
        "age_seconds": _rounded(report.age_seconds, 1),
        "headline": report.headline,
        "step_seconds": _rounded(report.step_seconds),
        "steps_per_second": _rounded(report.steps_per_second),
        "sm_percent": _rounded(report.sm_percent, 1),
        "memory_bytes": report.memory_bytes,
        "ranks": [_rank(rank, host) for rank in report.ranks],
        "verdict": None if report.verdict is None else verdict_document(report.verdict),
        "problems": [_problem(problem) for problem in report.problems],
    }


def _rank(rank: RankReport, host: str) -> Mapping[str, Any]:
    gpus = [{"label": gpu.label, "uuid": gpu.uuid} for gpu in rank.gpus]
    return {
        "rank": rank.rank,
        "host": rank.host or host,
        "is_remote": bool(rank.host),
        "pid": rank.pid,
        "gpu": gpus[0] if gpus else None,
        "gpus": gpus,
        "steps_count": rank.steps_count,
        "step_seconds": _rounded(rank.step_seconds),
        "late_seconds": _rounded(rank.late_seconds),
        "last_collective": None if rank.collective is None else collective_document(rank.collective),
        "state": rank.state or None,
        "line": rank.line or None,
        "probe": rank.probe or None,
        "since_seconds": _rounded(rank.since_seconds, 1),
        "memory_bytes": rank.memory_bytes,
        "sm_percent": _rounded(rank.sm_percent, 1),
    }


def collective_document(collective: RecordedCollective) -> Mapping[str, Any]:
    """A collective of a rank."""
    return {
        "group": collective.group,
        "name": collective.name,
        "sequence": collective.sequence,
        "size": [list(shape) for shape in collective.input_sizes],
        "dtypes": list(collective.dtypes),
        "state": collective.state.value,
    }


def verdict_document(verdict: HangVerdict) -> Mapping[str, Any]:
    """A verdict on a job."""
    return {
        "kind": verdict.kind.value,
        "is_hang": verdict.is_hang,
        "summary": verdict.summary,
        "rank": verdict.rank,
        "collective": verdict.collective or None,
        "line": verdict.line or None,
        "since_seconds": _rounded(verdict.since_seconds, 1),
        "waiting_ranks": list(verdict.waiting_ranks),
        "evidence": list(verdict.evidence),
    }


def _problem(problem: Problem) -> Mapping[str, str]:
    return {"code": problem.code.value, "reason": problem.reason, "remedy": problem.remedy}


def _rounded(value: float | None, digits: int = 6) -> float | None:
    return None if value is None else round(value, digits)
