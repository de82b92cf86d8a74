"""Jobs of Slurm: one by its id, from the queue or the accounting database, and the queue joined with a fleet."""

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.fleet.model import FleetError, FleetGpu, FleetSnapshot
from gpumon.fleet.slurm import SlurmJob, lacks_indexes, read_details, read_jobs, with_indexes
from gpumon.fleet.slurm_accounting import JobAccount, read_accounts
from gpumon.fleet.slurm_queue import SlurmQueue

FoundT = TypeVar("FoundT")
_NO_SUCH_JOB: Final = "invalid job id"
"""Part of the message with which squeue and scontrol refuse the id of a job that is not in the queue."""
_FINAL: Final = frozenset({ProblemCode.NOT_FOUND, ProblemCode.UNRESPONSIVE})
"""After these problems of squeue, the other commands are not asked: there is no Slurm, or it does not respond."""


class JobsById(NamedTuple):
    """What Slurm knows about a job, or about all jobs of an array.

    Attributes:
        jobs: Those in the queue.
        accounts: Those that are only in the accounting database; empty if ``jobs`` is not.
        problem: Why the indexes of GPUs are unknown, if scontrol was asked for them and gave none.
    """

    jobs: Sequence[SlurmJob] = ()
    accounts: Sequence[JobAccount] = ()
    problem: Problem | None = None


def look_up(job_id: str) -> JobsById:
    """Ask squeue; scontrol where squeue does not report indexes of GPUs; sacct for a job that has left the queue.

    Raises:
        CommandError: Slurm has no such job, is not installed, or refuses.
    """
    jobs, refusal = _asked(read_jobs, job_id)
    if refusal is not None and refusal.code in _FINAL:
        raise CommandError(refusal, ExitCode.MISSING_PREREQUISITE)
    problem = None
    if lacks_indexes(jobs) or (refusal is not None and not _is_unknown_job(refusal)):
        details, problem = _asked(read_details, job_id)
        jobs = with_indexes(jobs, details)
    if jobs:
        return JobsById(jobs, problem=problem if lacks_indexes(jobs) else None)
    accounts, account_refusal = _asked(read_accounts, job_id)
    if accounts:
        return JobsById(accounts=accounts)
    if refusal is not None and not _is_unknown_job(refusal):
        raise CommandError(refusal, ExitCode.MISSING_PREREQUISITE)
    reason = f"Slurm has no job {job_id} in its queue"
    if account_refusal is None:
        missing = Problem(ProblemCode.NOT_FOUND, f"{reason}, and sacct has no job {job_id} that you may see.")
    else:
        missing = Problem(ProblemCode.NOT_FOUND, f"{reason}. {account_refusal.reason}")
    raise CommandError(missing, ExitCode.MISSING_PREREQUISITE)


def _asked(read: Callable[[str], list[FoundT]], job_id: str) -> tuple[list[FoundT], Problem | None]:
    try:
        return read(job_id), None
    except FleetError as error:
        return [], error.problem


def _is_unknown_job(refusal: Problem) -> bool:
    return _NO_SUCH_JOB in refusal.reason.lower()


def short_name(host: str) -> str:
    """The name of a host without user, domain and port, in lower case; addresses stay whole."""
    name = host.rpartition("@")[2].lower()
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return name.partition(".")[0].partition(":")[0]
    return name


class SlurmJoin:
    """Joins one queue with snapshots, whose GPUs are often the same.

    Attributes:
        queue: The queue.
        jobs: Its jobs by their ids.
    """

    def __init__(self, queue: SlurmQueue) -> None:
        self.queue = queue
        self.jobs: Mapping[str, SlurmJob] = {job.id: job for job in queue.jobs}
        self._by_gpu = {(short_name(host), str(index)): job for job in queue.jobs for host, index in job.gpus}
        self._names: dict[str, str] = {}
        """Short names of hosts."""
        self._plain: tuple[FleetGpu, ...] = ()
        self._joined: tuple[FleetGpu, ...] = ()

    def joined(self, snapshot: FleetSnapshot) -> FleetSnapshot:
        """The snapshot, whose GPUs name the job that has them, and its user."""
        if not self._by_gpu:
            return snapshot
        if snapshot.gpus is not self._plain:
            self._plain, self._joined = snapshot.gpus, tuple(map(self._with_job, snapshot.gpus))
        return replace(snapshot, gpus=self._joined)

    def _with_job(self, gpu: FleetGpu) -> FleetGpu:
        """The GPU with its job. Slurm counts MIG devices in its own way, so that their labels are no indexes."""
        name = self._names.get(gpu.host)
        if name is None:
            name = self._names[gpu.host] = short_name(gpu.host)
        job = self._by_gpu.get((name, gpu.label))
        return gpu if job is None else gpu._replace(user=job.user or gpu.user, job=job.id)
