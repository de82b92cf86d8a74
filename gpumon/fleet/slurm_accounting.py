"""Jobs of Slurm that are no longer in the queue: what they requested and used, from ``sacct --json``."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from gpumon.fleet.slurm import SlurmJob, expand_hosts
from gpumon.fleet.slurm_answer import answer, job_number, jobs_in, number, part, text_of

_MEBIBYTE: Final = 1 << 20
_MAX_STEPS: Final = 4096
_HOSTS_TEXT: Final = 1 << 16


class JobAccount(NamedTuple):
    """A job as the accounting database has it; a value that is not recorded is None.

    Attributes:
        job: The job; its GPUs have no indexes here.
        exit_code: Exit code of its batch script.
        signal: The signal that ended it, such as ``KILL``, or empty.
        elapsed_seconds: How long it ran.
        limit_seconds: Its time limit.
        allocated_gpus: Number of GPUs that it had.
        cpus: Number of CPUs that it had.
        cpu_seconds: CPU time that it used.
        memory_bytes: Host memory that it requested.
        max_rss_bytes: The highest resident host memory of one of its tasks.
        gpu_memory_bytes: The highest device memory of one of its tasks, where Slurm records it.
        gpu_percent: The highest GPU utilization of one of its tasks, where Slurm records it.
    """

    job: SlurmJob
    exit_code: int | None = None
    signal: str = ""
    elapsed_seconds: float | None = None
    limit_seconds: float | None = None
    allocated_gpus: int | None = None
    cpus: int | None = None
    cpu_seconds: float | None = None
    memory_bytes: float | None = None
    max_rss_bytes: float | None = None
    gpu_memory_bytes: float | None = None
    gpu_percent: float | None = None


def read_accounts(job_id: str, command: str = "sacct") -> list[JobAccount]:
    """A job, or the jobs of an array, from the accounting database.

    Raises:
        FleetError: There is no such command, or it refuses, or does not respond.
    """
    return parse_accounts(answer(command, ["--jobs", job_id, "--json"]), command)


def parse_accounts(text: bytes, command: str = "sacct") -> list[JobAccount]:
    """The jobs in an answer of ``sacct --json``; what is no job is left out.

    Raises:
        FleetError: The answer is not JSON.
    """
    return [account for entry in jobs_in(text, command) if (account := _account(entry)) is not None]


def _account(entry: dict[str, Any]) -> JobAccount | None:
    job_id = job_number(entry, part(entry, "array", "job_id"), part(entry, "array", "task_id"))
    if job_id is None:
        return None
    allocated, requested = (list(_resources(part(entry, "tres", kind))) for kind in ("allocated", "requested"))
    hosts = text_of(entry.get("nodes"), _HOSTS_TEXT)
    limit, memory = number(part(entry, "time", "limit")), _count(requested, "mem")
    job = SlurmJob(
        job_id,
        text_of(entry.get("user")) or text_of(part(entry, "association", "user")),
        text_of(entry.get("name")),
        text_of(part(entry, "state", "current")),
        text_of(entry.get("partition")),
        _whole(_count(requested, "gres/gpu")),
        hosts=() if hosts.startswith("None") else tuple(expand_hosts(hosts)),  # "None assigned"
        start_seconds=number(part(entry, "time", "start")) or None,
        end_seconds=number(part(entry, "time", "end")) or None,
    )
    peaks = list(_peaks(entry.get("steps")))
    signal = part(entry, "exit_code", "signal")
    return JobAccount(
        job,
        _whole(number(part(entry, "exit_code", "return_code"))),
        text_of(part(signal, "name")),
        number(part(entry, "time", "elapsed")),
        None if limit is None else 60 * limit,
        _whole(_count(allocated, "gres/gpu")),
        _whole(_count(allocated, "cpu")),
        _seconds(part(entry, "time", "total")),
        None if memory is None else memory * _MEBIBYTE,
        _count(peaks, "mem"),
        _count(peaks, "gres/gpumem"),
        _count(peaks, "gres/gpuutil"),
    )


def _peaks(steps: object) -> Iterator[tuple[str, float]]:
    """The highest values of all steps. Slurm calls them requested, and what was written consumed."""
    for step in steps[:_MAX_STEPS] if isinstance(steps, list) else ():
        yield from _resources(part(step, "tres", "requested", "max"))


def _resources(raw: object) -> Iterator[tuple[str, float]]:
    """Trackable resources by name, such as ``cpu`` and ``gres/gpu``; a GPU of a type counts in the total as well."""
    for entry in raw if isinstance(raw, list) else ():
        count = number(part(entry, "count"))
        if count is not None and 0 <= count < 1 << 60:  # -2 and 2^64 - 2 stand for values that are not recorded
            kind, name = text_of(part(entry, "type")), text_of(part(entry, "name"))
            yield f"{kind}/{name.partition(':')[0]}" if name else kind, count


def _count(resources: Iterable[tuple[str, float]], name: str) -> float | None:
    return max((count for kind, count in resources if kind == name), default=None)


def _seconds(raw: object) -> float | None:
    seconds, microseconds = number(part(raw, "seconds")), number(part(raw, "microseconds"))
    return None if seconds is None else seconds + (microseconds or 0.0) / 1e6


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
