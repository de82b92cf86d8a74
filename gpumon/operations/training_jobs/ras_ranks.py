"""What NCCL's RAS report adds to a job: ranks on other hosts, and which rank has entered fewer collectives.

The counts are those of calls from the host. In a running job they differ from moment to moment, so they say something
only of a job without progress.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from gpumon.core.ranks import HangKind, HangVerdict, RankEvidence
from gpumon.core.units import duration_text
from gpumon.distributed.environment import TrainingJob
from gpumon.distributed.ras_report import RasCommunicator, RasReport
from gpumon.health.alerts import ranges_text
from gpumon.insight.hangs import MIN_COUNTED_SECONDS, description, kind_of, standing_of
from gpumon.operations.training_jobs.report import EXITED, RankGpu, RankReport

_NAMES: Final = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "Send": "send",
    "Recv": "recv",
}
"""PyTorch's names of NCCL's functions."""


class _Behind(NamedTuple):
    """Ranks of a communicator that have entered fewer collectives than others."""

    name: str
    ranks: tuple[int, ...]
    entered: int
    ahead: int
    waiting: tuple[int, ...]


def remote_ranks(job: TrainingJob, report: RasReport) -> tuple[RankReport, ...]:
    """The ranks on other hosts, as far as a communicator of all ranks of the job has them."""
    world = _world(job, report)
    if world is None:
        return ()
    known = {rank.rank for rank in (*job.ranks, *job.exited)}
    ranks = [
        RankReport(
            rank.rank,
            rank.host,
            rank.pid,
            gpus=() if rank.nvml_index is None else (RankGpu(str(rank.nvml_index)),),
            state="aborted" if rank.is_aborted else "",
        )
        for rank in world.ranks
        if rank.rank not in known
    ]
    ranks += [
        RankReport(rank.rank, rank.host, rank.pid, state=EXITED if rank.is_dead else "no answer")
        for rank in world.missing
        if rank.rank not in known
    ]
    return tuple(ranks)


def with_ras(
    job: TrainingJob,
    verdict: HangVerdict,
    report: RasReport | None,
    stalled_seconds: float,
    evidence: Sequence[RankEvidence] = (),
) -> HangVerdict:
    """The verdict, decided by NCCL's counts where the ranks of this host do not show why there is no progress."""
    if verdict.kind not in {HangKind.UNDECIDED, HangKind.TRANSPORT} or stalled_seconds < MIN_COUNTED_SECONDS:
        return verdict
    world = None if report is None else _world(job, report)
    since = duration_text(stalled_seconds)
    if world is not None:
        if dead := _dead(verdict, world, stalled_seconds):
            return dead
        behind = next(_behind(world), None)
        if behind is not None:
            local = next((rank for rank in evidence if rank.rank == behind.ranks[0] and not rank.exited), None)
            return _not_entered(verdict, world, behind, stalled_seconds, local)
    elsewhere = job.total_ranks - len(job.ranks) - len(job.exited)
    if verdict.kind is HangKind.TRANSPORT and elsewhere > 0:
        text = (
            f"{verdict.collective} does not complete for {since}: all ranks of this host have entered it. "
            f"{elsewhere} of {job.total_ranks} ranks are on other hosts (gpumon jobs --hosts)."
        )
        return replace(verdict, kind=HangKind.UNDECIDED, summary=text)
    return verdict


def judge_counts(report: RasReport) -> HangVerdict | None:
    """What one report shows by itself of a job that makes no progress; None if all ranks have entered as many."""
    world = max(report.communicators, key=lambda communicator: communicator.size, default=None)
    if world is None:
        return None
    nothing = HangVerdict(HangKind.UNDECIDED, is_hang=False, summary="")
    if verdict := _dead(nothing, world, None):
        return verdict
    behind = next(_behind(world), None)
    return None if behind is None else _not_entered(nothing, world, behind, None, None)


def _dead(verdict: HangVerdict, world: RasCommunicator, seconds: float | None) -> HangVerdict | None:
    """The verdict on a job with a rank whose process has ended; None without one."""
    dead = [rank for rank in world.missing if rank.is_dead]
    if not dead:
        return None
    stalled = "" if seconds is None else f"; no progress for {duration_text(seconds)}"
    return replace(
        verdict,
        kind=HangKind.DEAD,
        is_hang=True,
        summary=f"Rank {dead[0].rank} on {dead[0].host} has ended, as NCCL reports{stalled}.",
        rank=dead[0].rank,
        since_seconds=seconds,
        evidence=(*verdict.evidence, "NCCL's RAS service considers the process dead."),
    )


def _not_entered(
    verdict: HangVerdict, world: RasCommunicator, behind: _Behind, seconds: float | None, local: RankEvidence | None
) -> HangVerdict:
    """The verdict on ranks that are behind; of one on this host, /proc may show what it does instead."""
    hosts = {rank.rank: rank.host for rank in world.ranks}
    number = behind.ranks[0]
    is_one = len(behind.ranks) == 1
    place = f" on {hosts[number]}" if local is None else ""
    who = f"Rank {number}{place} has" if is_one else f"Ranks {ranges_text(behind.ranks)} have"
    waiting = "1 rank waits" if len(behind.waiting) == 1 else f"{len(behind.waiting)} ranks wait"
    does = f": {description(local)}" if local is not None and is_one else "" if seconds is None else ","
    during = "" if seconds is None else f" for {duration_text(seconds)}"
    collective = f"{_NAMES.get(behind.name, behind.name)} #{behind.ahead}"
    entered = f"NCCL's RAS service: {behind.name} entered {behind.ahead} times by ranks {ranges_text(behind.waiting)}"
    return replace(
        verdict,
        kind=HangKind.NOT_ENTERED if local is None or not is_one else kind_of(standing_of(local)),
        is_hang=True,
        summary=f"{who} not entered {collective}, as NCCL counts{does}{during}; {waiting}.",
        rank=number if is_one else None,
        collective=collective,
        since_seconds=seconds,
        evidence=(*verdict.evidence, f"{entered}, {behind.entered} times by ranks {ranges_text(behind.ranks)}."),
        waiting_ranks=behind.waiting,
    )


def _world(job: TrainingJob, report: RasReport) -> RasCommunicator | None:
    """The communicator of all ranks of a job, in which ranks are global ranks."""
    pids = {rank.pid: rank.rank for rank in job.ranks}
    for communicator in report.communicators:
        local = [rank for rank in communicator.ranks if rank.pid in pids]
        if communicator.size == job.total_ranks and any(pids[rank.pid or 0] == rank.rank for rank in local):
            return communicator
    return None


def _behind(communicator: RasCommunicator) -> Iterator[_Behind]:
    """For each kind of collective, the ranks that have entered fewer than the others."""
    for name in communicator.ranks[0].counts if communicator.ranks else ():
        counts: Mapping[int, int] = {rank.rank: rank.counts.get(name, 0) for rank in communicator.ranks}
        ahead, least = max(counts.values()), min(counts.values())
        if ahead > least:
            ranks: Sequence[int] = [rank for rank, count in counts.items() if count == least]
            waiting = tuple(rank for rank, count in counts.items() if count == ahead)
            yield _Behind(name, tuple(ranks), least, ahead, waiting)
