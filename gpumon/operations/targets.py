"""What a person names to a command, a PID, a launcher, a job or nothing, becomes the processes of a training run."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.procfs import nvidia_files, read_small
from gpumon.core.text import safe_text
from gpumon.core.units import counted
from gpumon.distributed.environment import RankVariables, TrainingJob, Workers
from gpumon.distributed.grouping import JobScanner, user_name
from gpumon.distributed.process_facts import ProcessFactsCache, ProcessRecord
from gpumon.operations.one_shot import sample_with_probes
from gpumon.operations.program_name import program_name
from gpumon.operations.training_jobs.host_report import workers_of

_ALL: Final = 1 << 20
_MAX_RANKS: Final = 64
_WORKER_NAME: Final = b"pt_data_worker"
"""The name that PyTorch gives to a worker of a DataLoader since 2.6."""
_SPAWNED: Final = ("multiprocessing.spawn", "multiprocessing.forkserver")
_MAX_MAPS_BYTES: Final = 8 << 20


class TrainingTarget(NamedTuple):
    """The processes that a command is about.

    Attributes:
        name: Short name of what they run.
        pids: The processes, by rank; at most 64.
        user: The user that they run as.
        note: How they follow from what was named, in a sentence; empty if that is obvious.
    """

    name: str
    pids: tuple[int, ...]
    user: str = ""
    note: str = ""

    def __str__(self) -> str:
        who = f"PID {self.pids[0]}" if len(self.pids) == 1 else counted(len(self.pids), "rank")
        return f"{self.name} of {self.user}, {who}"


class SeveralTargetsError(CommandError):
    """There is more than one training run to choose from: ``targets``."""

    def __init__(self, targets: Sequence[TrainingTarget]) -> None:
        problem = Problem(
            ProblemCode.INVALID_VALUE, "There are several training runs on this host.", "Name one by its PID."
        )
        super().__init__(problem, ExitCode.MISSING_PREREQUISITE)
        self.targets = tuple(targets)


def find_target(text: str | None, proc: Path = Path("/proc")) -> TrainingTarget:
    """Find what a person has named.

    That is a PID, the id of a job or the name of its program; None for the only training run of this host.

    Raises:
        CommandError: There is none, or more than one.
    """
    scanner = JobScanner(proc)
    if text is not None and text.isascii() and text.isdecimal():
        jobs = scanner.scan({}, _ALL)
        return _target_of(int(text), jobs, scanner.processes, proc)
    targets = [
        (job, _job_target(job)) for job in _jobs_of_host(scanner, proc) if job.ranks and os.geteuid() in {0, job.uid}
    ]
    if text is not None:
        targets = [
            (job, target)
            for job, target in targets
            if text.removesuffix(".py") == target.name or job.id.startswith(text)
        ]
    if not targets:
        named = "" if text is None else f" called {safe_text(text, 80)}"
        reason = f"There is no training run{named} on this host that you may observe."
        raise CommandError.missing(ProblemCode.NOT_FOUND, reason, "Name the PID of its process.")
    return _only([target for _, target in targets])


def with_all_ranks(target: TrainingTarget, proc: Path = Path("/proc")) -> TrainingTarget:
    """All ranks on this host of the job to which a process belongs; the process itself if it belongs to none."""
    jobs = JobScanner(proc).scan({}, _ALL)
    job = next((job for job in jobs if any(rank.pid in target.pids for rank in job.ranks)), None)
    return target if job is None else _job_target(job)


def _only(targets: Sequence[TrainingTarget]) -> TrainingTarget:
    """The only one of some targets.

    Raises:
        SeveralTargetsError: There are more.
    """
    if len(targets) > 1:
        raise SeveralTargetsError(targets)
    return targets[0]


def _jobs_of_host(scanner: JobScanner, proc: Path) -> Sequence[TrainingJob]:
    """The jobs on GPUs, with a probe, or of a launcher; without any, the programs that have loaded PyTorch."""
    workers: Workers = {}
    with suppress(CommandError):
        sample = sample_with_probes()
        workers = workers_of(sample.frame, sample.probes)
    jobs = scanner.scan(workers, _ALL)
    if any(job.ranks for job in jobs):
        return jobs
    records = scanner.processes.records()
    loaded = [record.pid for record in records if record.is_python and _has_torch(proc / str(record.pid))]
    return scanner.scan({pid: RankVariables() for pid in loaded}, _ALL)


def _has_torch(folder: Path) -> bool:
    with suppress(OSError), (folder / "maps").open("rb") as file:
        return b"/libtorch" in file.read(_MAX_MAPS_BYTES)
    return False


def _job_target(job: TrainingJob, pids: Sequence[int] | None = None, note: str = "") -> TrainingTarget:
    """A job, or some of its ranks."""
    ranks = [rank.pid for rank in job.ranks] if pids is None else pids
    return TrainingTarget(program_name(job.command), tuple(ranks[:_MAX_RANKS]), job.user, note)


def _target_of(pid: int, jobs: Sequence[TrainingJob], processes: ProcessFactsCache, proc: Path) -> TrainingTarget:
    """The processes that a PID stands for; the PID itself if there is no such process, which the command reports.

    Raises:
        SeveralTargetsError: It has started several jobs.
    """
    record = processes.get(pid)
    if record is None:
        return TrainingTarget("", (pid,))
    lineage = {above.pid for above in processes.ancestors(pid)}
    started = []
    for job in jobs:
        if any(rank.pid == pid for rank in job.ranks):
            return _job_target(job, [pid])
        below = [rank.pid for rank in job.ranks if any(above.pid == pid for above in processes.ancestors(rank.pid))]
        if below:
            started.append(_job_target(job, below, f"Process {pid} has started {counted(len(below), 'rank')}."))
        above = [rank.pid for rank in job.ranks if rank.pid in lineage]
        if above:
            return _job_target(job, above[-1:], f"Process {pid} is a worker of process {above[-1]}.")
    if started:
        return _only(started)
    own = _trainer(record, processes, proc)
    if own.pid != pid:
        note = f"Process {pid} is a worker of process {own.pid}."
    else:
        own = own if own.is_python else _program_below(own, processes)
        note = "" if own.pid == pid else f"Process {pid} has started process {own.pid}."
    return TrainingTarget(program_name(own.command), (own.pid,), user_name(own.uid), note)


def _trainer(record: ProcessRecord, processes: ProcessFactsCache, proc: Path) -> ProcessRecord:
    """The process whose DataLoader has started a process; the process itself if it is none."""
    parent = next(processes.ancestors(record.pid), None)
    if parent is None or not parent.is_python or not record.is_python:
        return record
    is_named = False
    with suppress(OSError):
        is_named = read_small(f"{proc}/{record.pid}/comm").startswith(_WORKER_NAME)
    is_child = record.command == parent.command or any(mark in record.command for mark in _SPAWNED)
    trains = _uses_gpu(record.pid, proc) and not _uses_gpu(parent.pid, proc)
    return _trainer(parent, processes, proc) if is_named or (is_child and not trains) else record


def _program_below(record: ProcessRecord, processes: ProcessFactsCache) -> ProcessRecord:
    """The only Python program that a shell or another wrapper has started; the process itself if there is none."""
    below = [
        other
        for other in processes.records()
        if other.is_python and any(above.pid == record.pid for above in processes.ancestors(other.pid))
    ]
    tops = processes.topmost(below)
    return tops[0] if len(tops) == 1 else record


def _uses_gpu(pid: int, proc: Path) -> bool:
    with suppress(OSError):
        return any(nvidia_files(proc / str(pid)))
    return False
