"""A time axis that a run's figures and its GPU's share: one column a bucket of time, from the beginning of the work."""

from collections.abc import Iterable
from typing import Final, NamedTuple

_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_HELD_SECONDS: Final = 2.5
"""A value holds until the next one, at most so long: what is read once a second fills columns of a quarter of one."""


class Axis(NamedTuple):
    """The axis.

    Attributes:
        start: Unix time of its left end.
        bucket_seconds: Width of a column.
        columns: Number of columns.
        now: Unix time up to which there is something to draw.
    """

    start: float
    bucket_seconds: float
    columns: int
    now: float

    @property
    def drawn(self) -> int:
        """Columns up to now."""
        return max(1, min(self.columns, int((self.now - self.start) / self.bucket_seconds) + 1))


def axis_over(start: float, now: float, expected_seconds: float | None, columns: int) -> Axis:
    """The axis with the finest columns on which everything so far, and what is expected, has room.

    Args:
        start: Unix time of the beginning.
        now: Unix time of the moment, or of the end.
        expected_seconds: How long it is to take, or None.
        columns: Cells of a strip.
    """
    elapsed = max(0.0, now - start)
    span = max(elapsed, expected_seconds or 0.0)
    bucket = next((each for each in _BUCKETS if each * columns > span), span / max(1, columns) + 1)
    return Axis(start, bucket, columns, start + elapsed)


def on_axis(samples: Iterable[tuple[float, float | None]], axis: Axis) -> list[float | None]:
    """The mean of each column up to now; None where nothing was measured.

    Args:
        samples: Unix time and value, in rising order.
        axis: The axis.
    """
    sums: list[list[float]] = [[] for _ in range(axis.drawn)]
    for seconds, value in samples:
        place = int((seconds - axis.start) // axis.bucket_seconds)
        if value is not None and -1 <= place <= axis.drawn:  # clocks of two processes, read at two moments
            sums[max(0, min(place, axis.drawn - 1))].append(value)
    held = int(max(1.0, _HELD_SECONDS / axis.bucket_seconds))
    found: list[float | None] = []
    last, age = None, 0
    for values in sums:
        last, age = (sum(values) / len(values), 0) if values else (last, age + 1)
        found.append(last if age < held else None)
    return found
