"""Time axes, one column per time bucket: one that scrolls and zooms through history, and one that a run grows along."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from gpumon.core.units import clock_text

ZOOMS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Seconds per column. Each is a multiple of the buckets that history is kept in, so that no bucket is split."""
_MIN_LABEL_CELLS: Final = 15
"""Minimum distance between two labels."""
_LABEL_STEPS_SECONDS: Final = (
    15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21_600.0, 43_200.0, 86_400.0,
)  # fmt: skip
_NOW: Final = "now"
_TICK: Final = "┴"
AXIS: Final = "─"
"""The axis between two labels."""
_RUN_BUCKETS_SECONDS: Final = (
    0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
)  # fmt: skip
_MAX_HELD_INTERVALS: Final = 2.5
"""A value holds until the next one, for at most this long: a metric read once per second fills columns of 0.25 s."""


class TimeWindow(NamedTuple):
    """The part of a history that a chart shows.

    Attributes:
        last: Number of the newest column; column n begins at n times its width, on the clock of the frames.
        width: Number of columns.
        column_seconds: Width of a column.
    """

    last: int
    width: int
    column_seconds: float

    @property
    def first(self) -> int:
        """Number of the oldest column."""
        return self.last - self.width + 1

    @property
    def begin_seconds(self) -> float:
        """Time at the left edge."""
        return self.first * self.column_seconds

    @property
    def end_seconds(self) -> float:
        """Time at the right edge."""
        return (self.last + 1) * self.column_seconds

    def index_of(self, seconds: float) -> int:
        """Index of the column that contains a time, counted from the oldest one; it may lie outside the window."""
        return column_of(seconds, self.column_seconds) - self.first


def column_of(seconds: float, column_seconds: float) -> int:
    """Number of the column that contains a time."""
    return int(seconds // column_seconds)


def zooms_for(history_seconds: float, columns: int) -> tuple[float, ...]:
    """The zoom levels up to the first one that shows the complete history."""
    last = next((index for index, zoom in enumerate(ZOOMS) if zoom * columns >= history_seconds), len(ZOOMS) - 1)
    return ZOOMS[: last + 1]


def axis_text(window: TimeWindow, now_seconds: float) -> str:
    """The axis: ticks labeled with the time before now; ``now`` stands at the right end if it is visible."""
    now = column_of(now_seconds, window.column_seconds)
    min_step = _MIN_LABEL_CELLS * window.column_seconds
    step_seconds = next((step for step in _LABEL_STEPS_SECONDS if step >= min_step), _LABEL_STEPS_SECONDS[-1])
    step = max(1, round(step_seconds / window.column_seconds))
    cells = [AXIS] * window.width
    for age in range(0, now - window.first + 1, step):
        label = f"{_TICK}-{clock_text(age * window.column_seconds)}" if age else f"{_NOW}{_TICK}"
        begin = now - age - window.first - (0 if age else len(_NOW))
        if begin >= 0 and begin + len(label) <= window.width:
            cells[begin : begin + len(label)] = label
    return "".join(cells)


class RunAxis(NamedTuple):
    """The axis that a run's metrics and those of its GPU share, from the start of the work.

    Attributes:
        start: Unix time of the left end.
        bucket_seconds: Width of a column.
        columns: Number of columns.
        now: Unix time up to which there is something to draw.
    """

    start: float
    bucket_seconds: float
    columns: int
    now: float

    @property
    def columns_drawn(self) -> int:
        """Number of columns up to now."""
        return max(1, min(self.columns, int((self.now - self.start) / self.bucket_seconds) + 1))


def run_axis(start: float, now: float, expected_seconds: float | None, columns: int) -> RunAxis:
    """The axis with the shortest buckets that has room for everything so far and for the expected duration.

    Args:
        start: Unix time at which the work started.
        now: Unix time of the moment, or of the end.
        expected_seconds: Expected duration, or None if unknown.
        columns: Cells of a sparkline.
    """
    elapsed = max(0.0, now - start)
    span = max(elapsed, expected_seconds or 0.0)
    bucket = next((size for size in _RUN_BUCKETS_SECONDS if size * columns > span), span / max(1, columns) + 1)
    return RunAxis(start, bucket, columns, start + elapsed)


def column_means(
    samples: Iterable[tuple[float, float | None]], axis: RunAxis, interval_seconds: float = 1.0
) -> list[float | None]:
    """The mean of each column up to now; None where nothing was measured.

    Args:
        samples: Unix time and value, in rising order of time.
        axis: The axis.
        interval_seconds: Expected time between two samples.
    """
    columns: list[list[float]] = [[] for _ in range(axis.columns_drawn)]
    for seconds, value in samples:
        index = int((seconds - axis.start) // axis.bucket_seconds)
        if value is not None and -1 <= index <= axis.columns_drawn:  # two processes read their clocks at two moments
            columns[max(0, min(index, axis.columns_drawn - 1))].append(value)
    max_held = int(max(1.0, _MAX_HELD_INTERVALS * max(1.0, interval_seconds) / axis.bucket_seconds))
    means: list[float | None] = []
    last, age = None, 0
    for values in columns:
        last, age = (sum(values) / len(values), 0) if values else (last, age + 1)
        means.append(last if age < max_held else None)
    return means
