"""Groups the processes of this host into training jobs.

A rank is named by the environment of its launcher, by its parent, or by a probe. A process with the environment of a
rank that descends from a rank is its helper, such as a worker of a DataLoader, and no rank.
"""

import os
import pwd
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

from gpumon.core.text import safe_text
from gpumon.distributed.environment import JobRank, RankVariables, TrainingJob, Workers
from gpumon.distributed.process_facts import MAX_READS, ProcessFactsCache, ProcessRecord

MAX_RANKS: Final = 4096
_MAX_JOBS: Final = 256
_SPAWNED: Final = ("multiprocessing.spawn", "multiprocessing.forkserver", "multiprocessing-fork")
"""In the command line of a process that `torch.multiprocessing.spawn` has started."""
_NO_RANK: Final = RankVariables()
_KEPT_SCANS: Final = 60
"""Scans for which a job that is over stays in the list."""


class JobScanner:
    """Finds the training jobs of this host, again and again."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._processes = ProcessFactsCache(proc)
        self._jobs: dict[str, TrainingJob] = {}
        self._over_for: dict[str, int] = {}
        """Number of scans since a job without ranks was over, by its key."""

    def scan(self, workers: Workers, max_reads: int = MAX_READS) -> tuple[TrainingJob, ...]:
        """The jobs now, those that ended lately last."""
        known = {rank.pid for job in self._jobs.values() for rank in job.ranks}
        self._processes.refresh(known.union(workers), max_reads)
        jobs = {job.key: job for job in _jobs_of(self._processes, workers)}
        self._jobs = self._with_exited(jobs)
        return tuple(self._jobs.values())

    @property
    def processes(self) -> ProcessFactsCache:
        """All processes of this host, as the last scan has read them."""
        return self._processes

    @property
    def is_complete(self) -> bool:
        """Whether the last scan has read every process."""
        return self._processes.is_complete

    def descends(self, pid: int, pids: Collection[int]) -> bool:
        """Whether a process descends from one of some processes, as far as the last scan has read it."""
        return any(ancestor.pid in pids for ancestor in self._processes.ancestors(pid))

    def _with_exited(self, jobs: dict[str, TrainingJob]) -> dict[str, TrainingJob]:
        """The jobs with the ranks that have ended, and for some time those of which all have."""
        result = {}
        for key, job in jobs.items():
            before = self._jobs.get(key)
            self._over_for.pop(key, None)
            result[key] = job if before is None else job._replace(exited=_exited(before, job))
        for key, before in self._jobs.items():
            scans = self._over_for.get(key, 0)
            if key not in jobs and scans < _KEPT_SCANS and before.total_ranks > 1:
                self._over_for[key] = scans + 1
                result[key] = before._replace(ranks=(), exited=(*before.ranks, *before.exited))
        self._over_for = {key: scans for key, scans in self._over_for.items() if key in result}
        return result


def _exited(before: TrainingJob, job: TrainingJob) -> tuple[JobRank, ...]:
    """The ranks of a job that have ended and were not replaced by a process with the same rank."""
    if not before.ranks:
        return ()  # all had ended, and the launcher has started them again
    running = {(rank.pid, rank.start_ticks) for rank in job.ranks}
    ranks = {rank.rank for rank in job.ranks if rank.rank is not None}
    ended = [rank for rank in before.ranks if (rank.pid, rank.start_ticks) not in running]
    return tuple(rank for rank in (*ended, *before.exited) if rank.rank is not None and rank.rank not in ranks)


def _jobs_of(processes: ProcessFactsCache, workers: Workers) -> Iterator[TrainingJob]:
    groups: dict[tuple[str, int], list[ProcessRecord]] = {}
    for record in processes.in_jobs():
        if record.job is not None and _may_be_rank(record, workers):
            groups.setdefault((record.job.id, record.uid), []).append(record)
    assigned: set[int] = set()
    count = 0
    for (job_id, _), records in sorted(groups.items())[:_MAX_JOBS]:
        ranks = list(_ranks_of(records, processes, workers))[:MAX_RANKS]
        assigned.update(record.pid for record in ranks)
        if ranks:
            count += 1
            yield _job(job_id, ranks, processes, workers)
    ancestors = {ancestor.pid for pid in assigned for ancestor in processes.ancestors(pid)}
    rest: dict[str, list[ProcessRecord]] = {}
    for pid in sorted(workers):
        worker = processes.get(pid)
        if worker is None or pid in assigned or pid in ancestors or worker.launcher or pid == os.getpid():
            continue
        lineage = list(processes.ancestors(pid))
        if any(ancestor.pid in assigned for ancestor in lineage):
            continue
        rest.setdefault(_id_by_parent(worker, lineage), []).append(worker)
    for job_id, records in list(rest.items())[: max(0, _MAX_JOBS - count)]:
        yield _job(job_id, processes.topmost(records)[:MAX_RANKS], processes, workers)


def _may_be_rank(record: ProcessRecord, workers: Workers) -> bool:
    """Whether a process with the variables of a rank can be one: shells and scripts inherit them too."""
    if record.pid == os.getpid() or record.launcher:
        return False
    if record.pid in workers:
        return True
    return record.job is not None and record.job.ranks.names_rendezvous and record.is_python


def _ranks_of(
    records: Sequence[ProcessRecord], processes: ProcessFactsCache, workers: Workers
) -> Iterator[ProcessRecord]:
    """The process of each rank: a worker before others, an ancestor before its descendants, the oldest first."""
    by_rank: dict[object, list[ProcessRecord]] = {}
    for record in records:
        rank = None if record.job is None else record.job.ranks.rank
        by_rank.setdefault(("pid", record.pid) if rank is None else rank, []).append(record)
    for candidates in by_rank.values():
        preferred = [record for record in candidates if record.pid in workers] or candidates
        yield min(processes.topmost(preferred), key=lambda record: (record.start_ticks, record.pid))


def _id_by_parent(record: ProcessRecord, lineage: Sequence[ProcessRecord]) -> str:
    """The job of a worker without variables: that of its parent if that starts ranks, else its own."""
    parent = lineage[0] if lineage else None
    if parent is not None:
        is_launched = record.is_hidden and parent.launcher
        is_spawned = any(mark in record.command for mark in _SPAWNED)
        is_forked = parent.is_python and parent.command == record.command
        if is_launched or is_spawned or is_forked:
            return f"pid {parent.pid}"
    return f"pid {record.pid}"


def _job(job_id: str, records: Sequence[ProcessRecord], processes: ProcessFactsCache, workers: Workers) -> TrainingJob:
    first = records[0]
    ranks = sorted(
        (_rank(record, workers) for record in records),
        key=lambda rank: (rank.rank is None, rank.rank or 0, rank.start_ticks, rank.pid),
    )
    sizes = [_variables(record, workers).world_size for record in records]
    known_size = max((size for size in sizes if size is not None), default=None)
    is_single = len(records) == 1 and known_size is None and not first.is_hidden
    variables = first.job
    return TrainingJob(
        id=job_id,
        uid=first.uid,
        user=user_name(first.uid),
        launcher=_launcher(first, processes),
        world_size=1 if is_single else known_size,
        ranks=tuple(ranks),
        start_ticks=min(record.start_ticks for record in records),
        ras_address="" if variables is None else variables.ras_address,
        has_ras=variables is None or variables.has_ras,
    )


def _variables(record: ProcessRecord, workers: Workers) -> RankVariables:
    """The rank that the environment names, or else the one that a probe reports."""
    if record.job is not None and record.job.ranks.rank is not None:
        return record.job.ranks
    return workers.get(record.pid, _NO_RANK)


def _rank(record: ProcessRecord, workers: Workers) -> JobRank:
    variables = _variables(record, workers)
    return JobRank(record.pid, record.start_ticks, variables.rank, variables.local_rank, record.command)


def _launcher(record: ProcessRecord, processes: ProcessFactsCache) -> str:
    """What started a rank: by its nearest ancestor that is a launcher, or else by its variables."""
    by_environment = "" if record.job is None else record.job.launcher
    if by_environment in {"accelerate", "deepspeed"}:
        return by_environment
    above = (ancestor.launcher for ancestor in _near(processes.ancestors(record.pid)))
    return next(filter(None, above), by_environment)


def _near(ancestors: Iterable[ProcessRecord]) -> Iterator[ProcessRecord]:
    """The parent and its parent: a launcher further up started something else."""
    for _, ancestor in zip(range(2), ancestors, strict=False):
        yield ancestor


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """The login name of a user, or the ID as text."""
    try:
        return safe_text(pwd.getpwuid(uid).pw_name, 64)
    except (KeyError, OverflowError):
        return str(uid)
