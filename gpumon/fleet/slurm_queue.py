"""All jobs of Slurm that run on GPUs. A child process asks Slurm and reads its answer.

The answer of squeue for thousands of jobs takes a second to read, in which a screen would not react.
"""

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import json
import shutil
import subprocess
from typing import Any, Final, NamedTuple

from gpumon.core.limited_child import MessageWriter, end_with_pipe, run_limited
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.source_file import UnreadableError
from gpumon.fleet.model import FleetError
from gpumon.fleet.slurm import SlurmJob, lacks_indexes, read_details, read_running, with_indexes

_DETAILS: Final = "details"
"""Argument of the child: ask scontrol alone, since squeue did not report the indexes before."""
_MAX_BYTES: Final = 32 << 20
_MEMORY_BYTES: Final = 2 << 30
_CPU_SECONDS: Final = 60
_TIMEOUT_SECONDS: Final = 60.0
"""Longer than both commands may take; each has its own limit."""


class SlurmQueue(NamedTuple):
    """The jobs that run on GPUs.

    Attributes:
        jobs: The jobs.
        problem: Why they are unknown, or which GPUs they have; None if all is known.
        needs_details: Whether only scontrol reports the indexes of GPUs.
    """

    jobs: tuple[SlurmJob, ...] = ()
    problem: Problem | None = None
    needs_details: bool = False


def has_slurm() -> bool:
    """Whether squeue is installed here."""
    return shutil.which("squeue") is not None


def read_queue(*, needs_details: bool = False) -> SlurmQueue:
    """Read the queue; never raises.

    Args:
        needs_details: The field of the queue that was read before.
    """
    command = [sys.executable, str(Path(__file__)), *([_DETAILS] if needs_details else [])]
    try:
        child = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        message = json.loads(child.stdout)
        if message["event"] != "result":
            return SlurmQueue(problem=Problem(ProblemCode.NOT_READ, str(message["reason"])))
        jobs = tuple(SlurmJob(*_frozen(fields)) for fields in message["jobs"])
        problem = Problem(ProblemCode.NOT_READ, message["problem"]) if message["problem"] else None
        return SlurmQueue(jobs, problem, bool(message["needs_details"]))
    except subprocess.TimeoutExpired:
        return SlurmQueue(problem=Problem(ProblemCode.UNRESPONSIVE, "Slurm did not respond within a minute."))
    except (OSError, ValueError, KeyError, TypeError):
        return SlurmQueue(problem=Problem(ProblemCode.NOT_READ, "The process that reads the queue of Slurm failed."))


def main() -> None:
    """Ask Slurm, and write the jobs as one line."""

    def read() -> dict[str, Any]:
        try:
            return _message(needs_details=_DETAILS in sys.argv[1:])
        except FleetError as error:
            raise UnreadableError(error.problem.reason) from error

    run_limited(read, MessageWriter(_MAX_BYTES), _MEMORY_BYTES, _CPU_SECONDS)


def _message(*, needs_details: bool) -> dict[str, Any]:
    """The jobs.

    Raises:
        FleetError: Slurm refuses, or does not respond.
    """
    jobs, problem = [] if needs_details else read_running(), ""
    if needs_details or lacks_indexes(jobs):
        needs_details = True
        try:
            jobs = with_indexes(jobs, read_details())
        except FleetError as error:
            if not jobs:
                raise
            problem = error.problem.reason
    jobs = [job._replace(hosts=()) for job in jobs if job.state == "RUNNING" and job.gpus]
    return {"event": "result", "jobs": jobs, "problem": problem, "needs_details": needs_details}


def _frozen(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """A value as it was before it became JSON."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


if __name__ == "__main__":
    end_with_pipe(main)
