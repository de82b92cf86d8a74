"""Every metric of one device over a long time: fine for what is new, coarser with age, bounded in memory.

A moment is a row of numbers, one a metric. Rows of one second become rows of ten seconds, and those rows of a minute;
each keeps the lowest, the mean and the highest of what it is made of, so that a spike is never averaged away. What was
not measured is a gap, and a value that cannot be true never enters.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from math import inf, isnan, nan
from operator import eq, gt, lt, mul
from typing import Final, NamedTuple

from gpumon.core.durations import HISTORY_SECONDS, LEAST_HISTORY_SECONDS, MOST_HISTORY_SECONDS
from gpumon.core.metrics import METRICS

TIERS: Final = ((1.0, 600.0), (10.0, 3600.0), (60.0, MOST_HISTORY_SECONDS))
"""Width of a bucket, and up to which age there are such buckets."""

_IDS: Final = tuple(METRICS)
_PLACES: Final = {metric: place for place, metric in enumerate(_IDS)}
_MINIMA: Final = tuple(metric.minimum for metric in METRICS.values())
_MAXIMA: Final = tuple(metric.maximum for metric in METRICS.values())
_MOST_OPEN: Final = 64
"""More readings than that in one bucket are joined at once: a flood must not grow the memory."""

Numbers = Sequence[float]


class Summary(NamedTuple):
    """What a metric was in a stretch of time."""

    low: float
    mean: float
    high: float


_NOTHING: Final = Summary(nan, nan, nan)


class Row(NamedTuple):
    """All metrics in a stretch of time, in the catalogue's order; NaN where nothing was measured.

    The three are one and the same object where the values did not differ, which is most of the time. ``weight`` tells
    of how many readings they are made, by which means are weighted.
    """

    lows: Numbers
    means: Numbers
    highs: Numbers
    weight: int = 1


class Tier:
    """The last ``size`` buckets of one width.

    Args:
        bucket_seconds: Width of a bucket.
        size: Number of buckets kept.
    """

    __slots__ = ("_closed", "_open", "bucket_seconds", "newest")

    def __init__(self, bucket_seconds: float, size: int) -> None:
        self.bucket_seconds = bucket_seconds
        self.newest: int | None = None
        self._closed: list[Row | None] = [None] * size
        self._open: list[Row] = []

    @property
    def horizon_seconds(self) -> float:
        """Before this moment everything is forgotten."""
        return -inf if self.newest is None else (self.newest - len(self._closed)) * self.bucket_seconds

    def advance(self, seconds: float) -> Row | None:
        """Moves to the bucket of a moment; returns what the bucket that ends with this holds, if anything."""
        bucket = int(seconds // self.bucket_seconds)
        if bucket == self.newest:
            return None
        size = len(self._closed)
        ended = self.open_row()
        if self.newest is not None:
            self._closed[self.newest % size] = ended
            for skipped in range(max(self.newest + 1, bucket - size), bucket):
                self._closed[skipped % size] = None
        self._open = []
        self.newest = bucket
        return ended

    def take(self, row: Row) -> None:
        """Adds a row to the newest bucket."""
        self._open.append(row)
        if len(self._open) > _MOST_OPEN:
            self._open = [joined(self._open)]

    def open_row(self) -> Row | None:
        """What the newest bucket holds so far."""
        return joined(self._open) if self._open else None

    def row(self, bucket: int) -> Row | None:
        """What a bucket before the newest holds, or None."""
        if self.newest is None or not self.newest - len(self._closed) <= bucket < self.newest:
            return None
        return self._closed[bucket % len(self._closed)]


class Timeline:
    """Every metric of one device.

    Args:
        history_seconds: How much is remembered, in seconds.
    """

    __slots__ = ("_first", "_tiers")

    def __init__(self, history_seconds: float = HISTORY_SECONDS) -> None:
        kept = [
            (width, int(min(age, max(history_seconds, LEAST_HISTORY_SECONDS)) / width))
            for place, (width, age) in enumerate(TIERS)
            if place == 0 or history_seconds > TIERS[place - 1][1]
        ]
        self._tiers = tuple(Tier(width, size) for width, size in kept)
        self._first: float | None = None

    @property
    def first_seconds(self) -> float | None:
        """The earliest moment that can still be asked for; None while there is nothing."""
        if self._first is None:
            return None
        return max(self._first, self._tiers[-1].horizon_seconds)

    def add(self, seconds: float, readings: Mapping[str, float] | None) -> None:
        """Adds what was measured at a moment; None if nothing was.

        Args:
            seconds: A clock that does not run backwards; what comes from before the newest second is dropped.
            readings: Value by metric.
        """
        finest = self._tiers[0]
        bucket = int(seconds // finest.bucket_seconds)
        if finest.newest is None or bucket > finest.newest:
            self._advance(seconds)
        elif bucket < finest.newest:
            return
        if readings:
            row = _row_of(readings)
            finest.take(Row(row, row, row))

    def _advance(self, seconds: float) -> None:
        """Moves every tier on, each giving what it has finished to the next one."""
        if self._first is None:
            self._first = seconds
        finished: Row | None = None
        for tier in self._tiers:
            if finished is not None:
                tier.take(finished)
            finished = tier.advance(seconds)

    def columns(self, metric: str, first: int, count: int, column_seconds: float) -> list[Summary | None]:
        """A metric over time, a column a stretch; None where nothing was measured.

        Args:
            metric: The metric.
            first: Number of the first column; column n begins at ``n * column_seconds``.
            count: Number of columns.
            column_seconds: Width of a column, a whole multiple or a whole part of the buckets' widths.
        """
        place = _PLACES[metric]
        found = []
        for column in range(first, first + count):
            rows = self._rows(column * column_seconds, column_seconds)
            found.append(_summary(rows, place))
        return found

    def _rows(self, start: float, seconds: float) -> list[Row]:
        """What is held of a stretch of time, as fine as it is still there, but no finer than needed."""
        finest = self._tiers[0]
        if finest.newest is None:
            return []
        tier = self._tier_for(start, seconds)
        first = int(start // tier.bucket_seconds)
        last = max(first, int((start + seconds) // tier.bucket_seconds) - 1)
        rows = [row for bucket in range(first, last + 1) if (row := tier.row(bucket)) is not None]
        if tier.newest is not None and first <= tier.newest <= last:
            finer = self._tiers[: self._tiers.index(tier) + 1]
            rows += [row for each in finer if (row := each.open_row()) is not None]
        return rows

    def _tier_for(self, start: float, seconds: float) -> Tier:
        """The coarsest tier that is fine enough; a coarser one where that has forgotten it."""
        chosen = self._tiers[0]
        for tier in self._tiers[1:]:
            if tier.bucket_seconds <= seconds or chosen.horizon_seconds > start:
                chosen = tier
        return chosen


def joined(rows: Sequence[Row]) -> Row:
    """Several rows as one: the lowest of the lows, the mean of the means, the highest of the highs."""
    if len(rows) == 1:
        return rows[0]
    counts = [row.weight for row in rows]
    middle = list(zip(*(row.means for row in rows), strict=True))
    if all(row.lows is row.highs for row in rows):
        summaries = [_over(values, values, values, counts) for values in middle]
    else:
        below, above = zip(*(row.lows for row in rows), strict=True), zip(*(row.highs for row in rows), strict=True)
        summaries = [_over(*three, counts) for three in zip(below, middle, above, strict=True)]
    low, mean, high = (array("f", values) for values in zip(*summaries, strict=True))
    if low.tobytes() == high.tobytes():
        mean = high = low
    return Row(low, mean, high, sum(counts))


def _over(lows: Numbers, means: Numbers, highs: Numbers, counts: Sequence[int]) -> Summary:
    """One metric of several rows; NaN where none of them has it. A row that lacks it lacks all three."""
    total = sum(map(mul, means, counts))
    if total == total:  # noqa: PLR0124 - NaN is the one number that differs from itself
        return Summary(min(lows), total / sum(counts), max(highs))
    if not any(map(eq, means, means)):  # so it is with most metrics of most GPUs
        return _NOTHING
    known = [four for four in zip(lows, means, highs, counts, strict=True) if four[1] == four[1]]
    return _over(*zip(*known, strict=True))


def _row_of(readings: Mapping[str, float]) -> "array[float]":
    """The readings in the catalogue's order, those left out that cannot be true."""
    values = list(map(readings.get, _IDS, repeat(nan)))
    if any(map(lt, values, _MINIMA)) or any(map(gt, values, _MAXIMA)):
        values = [
            value if low <= value <= high else nan for value, low, high in zip(values, _MINIMA, _MAXIMA, strict=True)
        ]
    return array("f", values)


def _summary(rows: Iterable[Row], place: int) -> Summary | None:
    known = [
        (row.lows[place], mean, row.highs[place], row.weight) for row in rows if not isnan(mean := row.means[place])
    ]
    if not known:
        return None
    low, mean, high = _over(*zip(*known, strict=True))
    return Summary(low, min(max(low, mean), high), high)  # sums are rounded, and may lie outside
