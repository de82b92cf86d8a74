"""A job of Slurm joined with the GPUs of a fleet: requested, allocated and used."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpumon.core.device_use import IDLE_PERCENT
from gpumon.core.groups import grouped
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.units import bytes_text, counted, duration_text
from gpumon.fleet.model import AGE, BUSIEST, IDLE_SECONDS, FleetSnapshot
from gpumon.fleet.slurm import SlurmJob
from gpumon.fleet.slurm_accounting import JobAccount
from gpumon.operations.fleet.findings import POWER, TOTAL, USED, UTILIZATION
from gpumon.operations.fleet.report import SSH, THIS_HOST, HostFrame, frames_snapshot
from gpumon.operations.fleet.slurm import short_name
from gpumon.operations.one_shot import sample_frame

SCHEMA: Final = 1
_ENDS: Final[Mapping[str, str]] = {
    "COMPLETED": "The job is complete after {elapsed}.",
    "TIMEOUT": "The time limit{limit} ended the job.",
    "OUT_OF_MEMORY": "The job was ended because it used more host memory than {memory}.",
    "CANCELLED": "The job was canceled after {elapsed}.",
    "NODE_FAIL": "The job ended after {elapsed} because one of its hosts failed.",
    "PREEMPTED": "The job ended after {elapsed} in favor of another job.",
}
"""Sentences by the state in which a job has ended."""
_NOT_IN_FLEET: Final = Problem(ProblemCode.NOT_FOUND, "The fleet has no such GPU.")


class JobGpu(NamedTuple):
    """A GPU that a job has; a value that is missing is None.

    Attributes:
        host: Its host, as Slurm names it.
        gpu: Its index on the host.
        uuid: Its UUID, or empty.
        utilization_percent: Utilization now.
        used_bytes: Used memory.
        total_bytes: Installed memory.
        power_watts: Power.
        age_seconds: Age of the values.
        is_used: Whether it is used now or was within the last half hour of the job; None if that is unknown.
        idle_seconds: How long it has been idle at least; 0 if it is known to be idle only now.
        problem: Why it has no values, or None.
    """

    host: str
    gpu: int
    uuid: str = ""
    utilization_percent: float | None = None
    used_bytes: float | None = None
    total_bytes: float | None = None
    power_watts: float | None = None
    age_seconds: float | None = None
    is_used: bool | None = None
    idle_seconds: float = 0.0
    problem: Problem | None = None


class JobReport(NamedTuple):
    """A job and its GPUs.

    Attributes:
        job: The job.
        gpus: Its GPUs, as far as Slurm reports which ones.
        account: What it requested and used, if it has left the queue.
        problem: Why its GPUs are unknown, or None.
    """

    job: SlurmJob
    gpus: tuple[JobGpu, ...] = ()
    account: JobAccount | None = None
    problem: Problem | None = None

    @property
    def allocated(self) -> int | None:
        """Number of GPUs that it has or had; None if unknown."""
        if self.account is not None:
            return self.account.allocated_gpus
        return None if self.job.requested_gpus and self.job.hosts and not self.gpus else len(self.gpus)

    @property
    def is_use_known(self) -> bool:
        """Whether it is known of one of its GPUs whether it is used; true if there is none."""
        return any(gpu.is_used is not None for gpu in self.gpus) if self.gpus else self.allocated == 0

    @property
    def used(self) -> int:
        """Number of GPUs that are used."""
        return sum(gpu.is_used is True for gpu in self.gpus)

    @property
    def sentence(self) -> str:
        """What stands out."""
        if self.account is not None:
            return end_sentence(self.account)
        allocated = counted(len(self.gpus), "GPU")
        if not self.gpus and self.job.hosts and self.job.requested_gpus:
            why = "" if self.problem is None else f": {self.problem.reason}"
            return f"Slurm does not report which GPUs the job has{why.rstrip('.')}."
        if not self.gpus:
            return f"The job has no GPUs: it is {self.job.state.lower() or 'in an unknown state'}."
        idle = [gpu for gpu in self.gpus if gpu.is_used is False]
        unknown = [gpu for gpu in self.gpus if gpu.is_used is None]
        if idle:
            since = " for 30 minutes" if all(gpu.idle_seconds for gpu in idle) else ""
            text = f"{len(idle)} of {allocated} {'is' if len(idle) == 1 else 'are'} idle{since}: {_names(idle)}."
        elif len(unknown) == len(self.gpus):
            return (
                f"Nothing is known about {'it' if len(unknown) == 1 else 'them'}: {unknown[0].problem or _NOT_IN_FLEET}"
            )
        else:
            text = f"All {allocated} are used." if len(self.gpus) > 1 else "The GPU is used."
            text = text if not unknown else f"{self.used} of {allocated} are used."
        return f"{text} Nothing is known about {_names(unknown)}." if unknown else text


def job_report(
    job: SlurmJob, snapshot: FleetSnapshot | None, now: float | None = None, problem: Problem | None = None
) -> JobReport:
    """Join a job with the fleet by short name of the host and index of the GPU.

    There is no snapshot if there is no fleet and the job does not run on this host. ``now`` is Unix time.
    """
    positions = {}
    if snapshot is not None:
        positions = {
            (short_name(gpu.host), gpu.label.partition(":")[0]): position for position, gpu in enumerate(snapshot.gpus)
        }
    seconds = None if job.start_seconds is None else (time.time() if now is None else now) - job.start_seconds
    is_old = seconds is None or seconds >= IDLE_SECONDS
    gpus = []
    for host, index in job.gpus:
        position = positions.get((short_name(host), str(index)))
        if snapshot is None or position is None:
            gpus.append(JobGpu(host, index, problem=_missing(snapshot, host)))
        else:
            gpus.append(_job_gpu(snapshot, position, host, index, is_old=is_old))
    return JobReport(job, tuple(gpus), problem=problem)


def end_sentence(account: JobAccount) -> str:
    """How a job ended."""
    elapsed = duration_text(account.elapsed_seconds)
    state = account.job.state
    if state == "FAILED" and account.signal:
        text = f"The job failed: the signal {account.signal} ended it after {elapsed}."
    elif state == "FAILED":
        code = "" if account.exit_code is None else f" with exit code {account.exit_code}"
        text = f"The job failed{code} after {elapsed}."
    else:
        text = _ENDS.get(state, "The job is in the state {state}.").format(
            state=state or "unknown",
            elapsed=elapsed,
            limit="" if account.limit_seconds is None else f" of {duration_text(account.limit_seconds)}",
            memory="it requested" if account.memory_bytes is None else f"the {bytes_text(account.memory_bytes)} it had",
        )
    is_idle = account.gpu_percent == 0 and bool(account.allocated_gpus)
    return f"{text} None of its tasks used a GPU." if is_idle else text


def _missing(snapshot: FleetSnapshot | None, host: str) -> Problem:
    """Why a GPU has no values."""
    if snapshot is None or THIS_HOST in snapshot.exporters:
        return Problem(
            ProblemCode.NOT_READ,
            "The GPU is on another host.",
            "Name the hosts with --hosts, or a Prometheus with --prometheus URL.",
        )
    name = short_name(host)
    problems = (problem for known, problem in snapshot.host_problems.items() if short_name(known) == name)
    return next(problems, _NOT_IN_FLEET)


def _job_gpu(snapshot: FleetSnapshot, position: int, host: str, index: int, *, is_old: bool) -> JobGpu:
    """A GPU of the fleet; its last half hour counts only if the job had it all the time."""
    utilization = snapshot.value(UTILIZATION, position)
    busiest = snapshot.value(BUSIEST, position) if is_old else None
    highest = max((value for value in (utilization, busiest) if value is not None), default=None)
    is_used = None if highest is None else highest >= IDLE_PERCENT
    if is_old and busiest is None and highest is not None and snapshot.gpus[position].exporter not in {SSH, THIS_HOST}:
        is_used = True  # Prometheus reports the busiest moment only of GPUs that were idle all the time
    return JobGpu(
        host,
        index,
        snapshot.gpus[position].uuid,
        utilization,
        snapshot.value(USED, position),
        snapshot.value(TOTAL, position),
        snapshot.value(POWER, position),
        snapshot.value(AGE, position),
        is_used,
        0.0 if busiest is None else IDLE_SECONDS,
    )


def local_snapshot(jobs: Sequence[SlurmJob]) -> FleetSnapshot | None:
    """The GPUs of this host if a job has GPUs here.

    Raises:
        CommandError: The collector did not send a frame.
    """
    here = os.uname().nodename
    if short_name(here) not in {short_name(host) for job in jobs for host, _ in job.gpus}:
        return None
    frame = sample_frame()
    driver = frame.problems.get("driver")
    return frames_snapshot([HostFrame(here, frame)], {} if driver is None else {here: driver}, THIS_HOST)


def job_document(reports: Sequence[JobReport]) -> Mapping[str, Any]:
    """The document of ``gpumon job --json``."""
    return {"schema": SCHEMA, "jobs": [_job_document(report) for report in reports]}


def _job_document(report: JobReport) -> Mapping[str, Any]:
    job = report.job
    return {
        "id": job.id,
        "user": job.user or None,
        "name": job.name or None,
        "state": job.state or None,
        "partition": job.partition or None,
        "start_seconds": job.start_seconds,
        "end_seconds": job.end_seconds,
        "hosts": list(job.hosts),
        "requested_gpus": job.requested_gpus,
        "allocated_gpus": report.allocated,
        "used_gpus": report.used if report.is_use_known else None,
        "gpus": [
            {
                **gpu._asdict(),
                "uuid": gpu.uuid or None,
                "problem": None
                if gpu.problem is None
                else {"code": gpu.problem.code.value, "reason": gpu.problem.reason},
            }
            for gpu in report.gpus
        ],
        "account": None if report.account is None else _account_document(report.account),
        "sentence": report.sentence,
    }


def _account_document(account: JobAccount) -> Mapping[str, Any]:
    values = account._asdict()
    del values["job"]
    return {**values, "signal": account.signal or None}


def _names(gpus: Sequence[JobGpu]) -> str:
    """GPUs by host, such as ``gpu01 GPUs 0, 3; gpu02 GPU 1``."""
    by_host = grouped((gpu.host, gpu.gpu) for gpu in gpus)
    return "; ".join(
        f"{host} GPU{'s' * (len(indexes) > 1)} {', '.join(map(str, indexes))}" for host, indexes in by_host.items()
    )
