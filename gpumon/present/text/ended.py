"""Tables of what has ended: for `gpumon last` and `gpumon jobs --ended`."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from gpumon.core.units import MISSING, bytes_text, duration_text, local_time_text, number_text, percent_text
from gpumon.operations.recorder.events import EndedJob
from gpumon.present.paint.columns import Cells, columns, names, numbers
from gpumon.present.paint.line import plain
from gpumon.present.paint.table import Column, fit_columns, headings, row_line


class UserSum(NamedTuple):
    """What the jobs of a user add up to; the attributes are those of `EndedJob`."""

    user: str
    jobs: int
    gpu_hours: float
    idle_gpu_hours: float
    utilization_percent: float | None
    sm_percent: float | None


def user_sums(jobs: Sequence[EndedJob]) -> list[UserSum]:
    """The sums of each user, most GPU-hours first."""
    users = {user: [job for job in jobs if job.user == user] for user in {job.user for job in jobs}}
    sums = [
        UserSum(
            user,
            len(own),
            sum(job.gpu_hours for job in own),
            sum(job.idle_gpu_hours for job in own),
            *(_mean(own, name) for name in ("utilization_percent", "sm_percent")),
        )
        for user, own in users.items()
    ]
    return sorted(sums, key=lambda total: (-total.gpu_hours, total.user))


def ended_lines(
    jobs: Sequence[EndedJob], sums: Sequence[UserSum], shown: Sequence[Column[Any]], width: int
) -> list[str]:
    """The lines of jobs and, below them, of users.

    Args:
        jobs: The jobs.
        sums: The users; empty for none.
        shown: Columns of the jobs.
        width: Cells of a line.
    """
    if not jobs:
        return ["Nothing that used a GPU has ended in this time."]
    return [*_table(shown, jobs, width), *(["", *_table(columns("ended-users", _CELLS), sums, width)] if sums else [])]


def _mean(jobs: Sequence[EndedJob], name: str) -> float | None:
    """The mean of a value, weighted by GPU-hours."""
    known = [(getattr(job, name), job.gpu_hours) for job in jobs if getattr(job, name) is not None]
    hours = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / hours if hours else None


def _table(shown: Sequence[Column[Any]], rows: Sequence[Any], width: int) -> list[str]:
    placed = fit_columns(shown, width)
    return [plain(headings(placed)).rstrip(), *(plain(row_line(placed, row)).rstrip() for row in rows)]


_CELLS: Final[dict[str, Cells[Any]]] = {
    "ended": names(lambda job: local_time_text(job.end_seconds, "%Y-%m-%d %H:%M")),
    "user": names(lambda row: row.user, missing=MISSING),
    "program": names(lambda job: job.program, missing=MISSING),
    "job": names(lambda job: job.job, missing=MISSING),
    "jobs": numbers(lambda total: total.jobs),
    "gpus": names(lambda job: ",".join(job.gpus), missing=MISSING),
    "time": numbers(lambda job: job.end_seconds - job.begin_seconds, duration_text),
    "gpu-hours": numbers(lambda row: row.gpu_hours, partial(number_text, decimals=2)),
    "utilization": numbers(lambda row: row.utilization_percent, percent_text),
    "sm": numbers(lambda row: row.sm_percent, percent_text),
    "idle-gpu-hours": numbers(lambda row: row.idle_gpu_hours, partial(number_text, decimals=2)),
    "peak-memory": numbers(lambda job: job.peak_bytes, bytes_text),
    "memory": numbers(lambda job: job.memory_percent, percent_text),
    "how": names(lambda job: job.how, missing=MISSING),
}
LAST_COLUMNS: Final = columns("last", _CELLS)
ENDED_COLUMNS: Final = columns("ended-jobs", _CELLS)
