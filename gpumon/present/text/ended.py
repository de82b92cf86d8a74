"""Tables of what has ended: for `gpumon last` and `gpumon jobs --ended`."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from gpumon.core.units import MISSING, bytes_text, duration_text, local_time_text, number_text
from gpumon.operations.recorder.events import EndedJob
from gpumon.present.paint.line import Span, plain
from gpumon.present.paint.table import Align, Column, fit_columns, headings, row_line

_NOTHING: Final = "Nothing that used a GPU has ended in this time."


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
    jobs: Sequence[EndedJob], sums: Sequence[UserSum], columns: Sequence[Column[Any]], width: int
) -> list[str]:
    """The lines of jobs and, below them, of users.

    Args:
        jobs: The jobs.
        sums: The users; empty for none.
        columns: Columns of the jobs.
        width: Cells of a line.
    """
    if not jobs:
        return [_NOTHING]
    return [*_table(columns, jobs, width), *(["", *_table(_USER_COLUMNS, sums, width)] if sums else [])]


def _mean(jobs: Sequence[EndedJob], name: str) -> float | None:
    """The mean of a value, weighted by GPU-hours."""
    known = [(getattr(job, name), job.gpu_hours) for job in jobs if getattr(job, name) is not None]
    hours = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / hours if hours else None


def _table(columns: Sequence[Column[Any]], rows: Sequence[Any], width: int) -> list[str]:
    placed = fit_columns(columns, width)
    return [plain(headings(placed)).rstrip(), *(plain(row_line(placed, row)).rstrip() for row in rows)]


def _column(
    heading: str, width: int, rank: int, text: Callable[[Any], str], *, is_text: bool = False, stretches: bool = False
) -> Column[Any]:
    align = Align.LEFT if is_text else Align.RIGHT
    return Column(heading, width, lambda row, _: Span(text(row) or MISSING), rank, align, stretches, id=heading)


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0f}%"


_USER: Final = _column("User", 9, 1, lambda row: row.user, is_text=True)
_GPU_HOURS: Final = _column("GPU-hours", 9, 2, lambda row: number_text(row.gpu_hours, 2))
_SHARES: Final = (
    _column("Util", 5, 6, lambda row: _percent(row.utilization_percent)),
    _column("SM", 5, 3, lambda row: _percent(row.sm_percent)),
    _column("Idle GPU-hours", 14, 4, lambda row: number_text(row.idle_gpu_hours, 2)),
)
_WHAT: Final = (
    _USER,
    _column("Program", 14, 1, lambda job: job.program, is_text=True, stretches=True),
    _column("Job", 12, 6, lambda job: job.job, is_text=True),
    _column("GPUs", 8, 2, lambda job: ",".join(job.gpus)),
)
LAST_COLUMNS: Final = (
    _column("Ended", 16, 1, lambda job: local_time_text(job.end_seconds, "%Y-%m-%d %H:%M"), is_text=True),
    *_WHAT,
    _column("Time", 8, 2, lambda job: duration_text(job.end_seconds - job.begin_seconds)),
    _column("Peak memory", 11, 4, lambda job: bytes_text(job.peak_bytes)),
    _column("How", 22, 3, lambda job: job.how, is_text=True),
)
ENDED_COLUMNS: Final = (
    *_WHAT,
    _GPU_HOURS,
    *_SHARES,
    _column("Memory", 7, 5, lambda job: _percent(job.memory_percent)),
)
_USER_COLUMNS: Final = (_USER, _column("Jobs", 6, 2, lambda total: str(total.jobs)), _GPU_HOURS, *_SHARES)
