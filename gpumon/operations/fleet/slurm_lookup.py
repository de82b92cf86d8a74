"""A job of Slurm by its id: from the queue, with the indexes of its GPUs, or from the accounting database."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.fleet.model import FleetError
from gpumon.fleet.slurm import SlurmJob, lacks_indexes, read_details, read_jobs, with_indexes
from gpumon.fleet.slurm_accounting import JobAccount, read_accounts

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
