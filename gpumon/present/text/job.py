"""The output of ``gpumon job``: the job, its GPUs or what it used, and what stands out."""

import time
from collections.abc import Iterator, Sequence

from gpumon.core.units import (
    MISSING,
    age_text,
    bytes_text,
    counted,
    duration_text,
    local_time_text,
    percent_text,
    power_text,
)
from gpumon.fleet.slurm_accounting import JobAccount
from gpumon.operations.fleet.scheduler_job import JobGpu, JobReport
from gpumon.present.paint.cell_table import CellColumn, cell_table, fitting_columns
from gpumon.present.paint.line import plain
from gpumon.present.paint.table import Align


def job_lines(report: JobReport, width: int, now: float | None = None) -> list[str]:
    """The lines of one job.

    Args:
        report: The job.
        width: Cells of a line of the table, or 0 for as many as it needs.
        now: Unix time; None for now.
    """
    job = report.job
    names = (job.name, job.user and f"of {job.user}", job.state, job.partition and f"partition {job.partition}")
    lines = [f"Job {job.id}: {', '.join(filter(None, names))}"]
    if job.start_seconds is not None and (report.gpus or report.account is not None):
        seconds = max(0.0, (time.time() if now is None else now) - job.start_seconds)
        if report.account is not None:
            seconds = report.account.elapsed_seconds or 0.0
        started = local_time_text(job.start_seconds, "%Y-%m-%d %H:%M")
        lines.append(f"Since {started}, for {duration_text(seconds)}, on {counted(len(job.hosts), 'host')}")
    numbers = (job.requested_gpus, report.allocated, report.used if report.is_use_known else None)
    requested, allocated, used = (MISSING if number is None else str(number) for number in numbers)
    if report.account is not None:
        lines += [f"GPUs: {requested} requested, {allocated} allocated", *_account_lines(report.account)]
    else:
        lines.append(f"GPUs: {requested} requested, {allocated} allocated, {used} used")
    if report.gpus:
        lines += ["", *_table(report.gpus, width)]
    return [*lines, "", report.sentence]


def _account_lines(account: JobAccount) -> Iterator[str]:
    """What a job requested and used, as far as Slurm has recorded it."""
    used = f"{bytes_text(account.max_rss_bytes)} used at most by one task"
    yield f"Host memory: {bytes_text(account.memory_bytes)} requested, {used}"
    seconds = (account.cpus or 0) * (account.elapsed_seconds or 0.0)
    share = None if account.cpu_seconds is None or not seconds else 100 * account.cpu_seconds / seconds
    cpus = MISSING if account.cpus is None else str(account.cpus)
    yield f"CPUs: {cpus} allocated, {percent_text(share)} of their time used"
    if account.limit_seconds is not None:
        yield f"Time limit: {duration_text(account.limit_seconds)}"
    if account.gpu_memory_bytes is not None or account.gpu_percent is not None:
        memory, percent = bytes_text(account.gpu_memory_bytes), percent_text(account.gpu_percent)
        yield f"GPU use at most by one task: {memory}, {percent}"


def _table(gpus: Sequence[JobGpu], width: int) -> list[str]:
    columns = [
        CellColumn(["Host"], [gpu.host for gpu in gpus], 0),
        CellColumn(["GPU"], [str(gpu.gpu) for gpu in gpus], 0, Align.RIGHT),
        CellColumn(["Util"], [percent_text(gpu.utilization_percent) for gpu in gpus], 0, Align.RIGHT),
        CellColumn(["Memory"], [bytes_text(gpu.used_bytes) for gpu in gpus], 1, Align.RIGHT),
        CellColumn(["Total"], [bytes_text(gpu.total_bytes) for gpu in gpus], 4, Align.RIGHT),
        CellColumn(["Power"], [power_text(gpu.power_watts) for gpu in gpus], 2, Align.RIGHT),
        CellColumn(["Age"], [age_text(gpu.age_seconds) for gpu in gpus], 3, Align.RIGHT),
        CellColumn(["Use"], [_use_text(gpu) for gpu in gpus], 1),
    ]
    return [plain(row).rstrip() for row in cell_table(fitting_columns(columns, width))]


def _use_text(gpu: JobGpu) -> str:
    if gpu.is_used is None:
        return "unknown"
    if gpu.is_used:
        return "used"
    return "idle for 30 minutes" if gpu.idle_seconds else "idle now"
