"""The history of all metrics of one device: fine for recent time, coarser with age, bounded in memory.

A moment is a row of numbers, one per metric. Rows of one second are merged into rows of ten seconds, and those into
rows of a minute. A merged row keeps the lowest, the mean and the highest value of its parts, so that averaging never
hides a spike. Time without a measurement is a gap, and a value outside its metric's bounds is never stored.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from math import ceil, inf, isnan, nan
from operator import eq, gt, lt, mul
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.core.metrics import METRICS

DEFAULT_HISTORY_SECONDS: Final = 3600.0
MIN_HISTORY_SECONDS: Final = 60.0
MAX_HISTORY_SECONDS: Final = 7 * 86_400.0
TIERS: Final = ((1.0, 600.0), (10.0, 3600.0), (60.0, MAX_HISTORY_SECONDS))
"""Bucket width of a tier and the age up to which the tier keeps its buckets, in seconds."""

_JITTER: Final = 1.5
"""Frames may come late by this factor of the interval without leaving a gap."""
_MAX_HOLD_SECONDS: Final = 2 * 3600.0
"""Limits the work for a recording that claims an absurd interval; the longest interval of gpumon is an hour."""
_MAX_OPEN_ROWS: Final = 64
"""More rows than this in one bucket are merged at once, so that a flood of readings does not grow the memory."""

_IDS: Final = tuple(METRICS)
_POSITIONS: Final = {metric: position for position, metric in enumerate(_IDS)}
_MINIMA: Final = tuple(metric.minimum for metric in METRICS.values())
_MAXIMA: Final = tuple(metric.maximum for metric in METRICS.values())

Numbers = Sequence[float]


class Summary(NamedTuple):
    """The values of one metric over a time range."""

    low: float
    mean: float
    high: float


_NOTHING: Final = Summary(nan, nan, nan)


class Row(NamedTuple):
    """The values of all metrics over a time range, in the order of the catalogue; NaN if nothing was measured.

    Lows, means and highs are the same object if the values did not differ, which is the usual case. ``weight`` is the
    number of readings in the row, by which means are weighted.
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
        """The tier holds nothing from before this moment."""
        return -inf if self.newest is None else (self.newest - len(self._closed)) * self.bucket_seconds

    def advance(self, seconds: float) -> Row | None:
        """Move to the bucket of a moment, and return the row of the bucket that is closed by the move, if any."""
        bucket = int(seconds // self.bucket_seconds)
        if bucket == self.newest:
            return None
        size = len(self._closed)
        closed = merged(self._open) if self._open else None
        if self.newest is not None:
            self._closed[self.newest % size] = closed
            for skipped in range(max(self.newest + 1, bucket - size), bucket):
                self._closed[skipped % size] = None
        self._open = []
        self.newest = bucket
        return closed

    def add(self, row: Row) -> None:
        """Add a row to the newest bucket."""
        self._open.append(row)
        if len(self._open) > _MAX_OPEN_ROWS:
            self._open = [merged(self._open)]

    def open_rows(self) -> Sequence[Row]:
        """The rows of the newest bucket so far."""
        return self._open

    def mean_since(self, position: int, first: int) -> float | None:
        """The mean of one metric from a bucket on; None if nothing was measured."""
        rows = [self.closed_row(bucket) for bucket in self.closed_buckets(first, self.newest or 0)]
        total, weight = 0.0, 0
        for row in (*rows, *self._open):
            if row is not None and (mean := row.means[position]) == mean:  # NaN differs from itself
                total += mean * row.weight
                weight += row.weight
        return total / weight if weight else None

    def closed_buckets(self, first: int, last: int) -> range:
        """The buckets from ``first`` to ``last`` that are kept, without the newest one."""
        newest = self.newest or 0
        return range(max(first, newest - len(self._closed)), min(last + 1, newest))

    def closed_row(self, bucket: int) -> Row | None:
        """The row of one of the `closed_buckets`, or None if nothing was measured."""
        return self._closed[bucket % len(self._closed)]


class _Strip:
    """The means of one metric that cannot change anymore, kept because a strip is drawn far more often than it moves.

    Attributes:
        end: Number of the column after the last one kept.
        means: Oldest first; None for a gap.
    """

    __slots__ = ("end", "means")

    def __init__(self) -> None:
        self.end = 0
        self.means: list[float | None] = []


class Timeline:
    """The history of all metrics of one device.

    Args:
        history_seconds: How much is kept, in seconds.
    """

    __slots__ = ("_first", "_interval", "_latest", "_strips", "_tiers")

    def __init__(self, history_seconds: float = DEFAULT_HISTORY_SECONDS) -> None:
        kept = [
            (width, int(min(age, max(history_seconds, MIN_HISTORY_SECONDS)) / width))
            for number, (width, age) in enumerate(TIERS)
            if number == 0 or history_seconds > TIERS[number - 1][1]
        ]
        self._tiers = tuple(Tier(width, size) for width, size in kept)
        self._first: float | None = None
        self._interval = 0.0
        self._latest: Row | None = None
        self._strips: dict[tuple[str, float], _Strip] = {}

    @property
    def first_seconds(self) -> float | None:
        """The earliest moment of which something is kept; None while the timeline is empty."""
        if self._first is None:
            return None
        return max(self._first, self._tiers[-1].horizon_seconds)

    def add(
        self,
        seconds: float,
        readings: Mapping[str, float] | None,
        interval_seconds: float = 0.0,
        ranges: Mapping[str, tuple[float, float]] = MappingProxyType({}),
    ) -> None:
        """Add the readings of a moment.

        A value holds until the next reading is due, so that a column that falls between two readings is not a gap.

        Args:
            seconds: Time on a clock that does not run backwards; readings from before the newest second are dropped.
            readings: Value by metric; None if nothing was measured.
            interval_seconds: Expected time between two readings; 0 if none is expected.
            ranges: Lowest and highest value by metric, where ``readings`` are means.
        """
        finest = self._tiers[0]
        bucket = int(seconds // finest.bucket_seconds)
        if finest.newest is None:
            self._first = seconds
            self._advance(seconds)
        elif bucket > finest.newest:
            self._hold(finest.newest, bucket, max(interval_seconds, self._interval))
            self._advance(seconds)
        elif bucket < finest.newest:
            return
        self._interval = interval_seconds
        self._latest = None
        if readings:
            low = row = high = _row_of(readings)
            if ranges:
                low, high = (
                    _row_of({**readings, **{name: pair[end] for name, pair in ranges.items()}}) for end in (0, 1)
                )
            self._latest = Row(low, row, high)
            finest.add(self._latest)

    def _hold(self, before: int, bucket: int, interval_seconds: float) -> None:
        """Repeat the latest reading in the skipped buckets up to the moment at which the next reading was due."""
        finest = self._tiers[0]
        skipped = bucket - before - 1
        if self._latest is None or not skipped:
            return
        interval = min(interval_seconds, _MAX_HOLD_SECONDS) / finest.bucket_seconds
        held = skipped if skipped <= _JITTER * interval else ceil(interval) - 1
        for number in range(before + 1, before + held + 1):
            self._advance(number * finest.bucket_seconds)
            finest.add(self._latest)

    def _advance(self, seconds: float) -> None:
        """Move every tier to a moment; each tier passes the row that it closes to the next tier."""
        closed: Row | None = None
        for tier in self._tiers:
            if closed is not None:
                tier.add(closed)
            closed = tier.advance(seconds)

    def columns(self, metric: str, first: int, count: int, column_seconds: float) -> list[Summary | None]:
        """Return a metric over time, one summary per column; None for a column in which nothing was measured.

        Args:
            metric: Id of the metric.
            first: Number of the first column; column n begins at ``n * column_seconds``.
            count: Number of columns.
            column_seconds: Width of a column, an integer multiple or fraction of the bucket widths.
        """
        position = _POSITIONS[metric]
        return [
            _summary(self._rows(column * column_seconds, column_seconds), position)
            for column in range(first, first + count)
        ]

    def recent_means(self, metric: str, count: int, column_seconds: float) -> list[float | None]:
        """Return the means of the newest columns, oldest first; None for a column in which nothing was measured.

        Only the newest column is computed at every call, since the columns before it cannot change anymore.

        Args:
            metric: Id of the metric.
            count: Number of columns, at least 1.
            column_seconds: Width of a column, as in `columns`.
        """
        finest = self._tiers[0]
        begin = self.first_seconds
        if finest.newest is None or begin is None:
            return [None] * count
        newest = int(finest.newest * finest.bucket_seconds // column_seconds)
        strip = self._strips.get((metric, column_seconds))
        if strip is None:
            strip = self._strips[metric, column_seconds] = _Strip()
        if strip.end != newest or len(strip.means) < count - 1:
            self._extend(strip, metric, newest, count - 1, column_seconds)
        means = strip.means[len(strip.means) - count + 1 :]
        means.append(finest.mean_since(_POSITIONS[metric], int(newest * column_seconds // finest.bucket_seconds)))
        forgotten = min(count, int(begin // column_seconds) - (newest - count + 1))
        if forgotten > 0:
            means[:forgotten] = [None] * forgotten
        return means

    def _extend(self, strip: _Strip, metric: str, end: int, count: int, column_seconds: float) -> None:
        """Bring a strip up to a column, with at least ``count`` columns before it."""
        size = max(count, len(strip.means))
        can_extend = len(strip.means) == size and end - strip.end < size
        first = strip.end if can_extend else end - size
        summaries = self.columns(metric, first, end - first, column_seconds)
        strip.means += [None if summary is None else summary.mean for summary in summaries]
        strip.means = strip.means[len(strip.means) - size :]
        strip.end = end

    def _rows(self, start: float, seconds: float) -> list[Row]:
        """The rows of a time range, as fine as they are still kept, but no finer than needed."""
        if self._first is None:
            return []
        tier = self._tier_for(start, seconds)
        first = int(start // tier.bucket_seconds)
        last = max(first, int((start + seconds) // tier.bucket_seconds) - 1)
        rows = [row for bucket in tier.closed_buckets(first, last) if (row := tier.closed_row(bucket)) is not None]
        if tier.newest is not None and first <= tier.newest <= last:
            for finer in self._tiers[: self._tiers.index(tier) + 1]:
                rows += finer.open_rows()
        return rows

    def _tier_for(self, start: float, seconds: float) -> Tier:
        """The coarsest tier that is fine enough, or a coarser one if that tier no longer holds the start."""
        chosen = self._tiers[0]
        for tier in self._tiers[1:]:
            if tier.bucket_seconds <= seconds or chosen.horizon_seconds > start:
                chosen = tier
        return chosen


def merged(rows: Sequence[Row]) -> Row:
    """Merge rows into one: the lowest of the lows, the weighted mean of the means, the highest of the highs."""
    first = rows[0]
    if len(rows) == 1:
        return first
    weights = [row.weight for row in rows]
    if all(row.means is first.means is row.lows is row.highs for row in rows):  # a held value, or an unchanged one
        return first._replace(weight=sum(weights))
    middle = list(zip(*(row.means for row in rows), strict=True))
    if all(row.lows is row.highs for row in rows):
        summaries = [_combined(values, values, values, weights) for values in middle]
    else:
        below, above = zip(*(row.lows for row in rows), strict=True), zip(*(row.highs for row in rows), strict=True)
        summaries = [_combined(*parts, weights) for parts in zip(below, middle, above, strict=True)]
    low, mean, high = (array("f", values) for values in zip(*summaries, strict=True))
    if low.tobytes() == high.tobytes():
        mean = high = low
    return Row(low, mean, high, sum(weights))


def _combined(lows: Numbers, means: Numbers, highs: Numbers, weights: Sequence[int]) -> Summary:
    """Combine one metric of several rows; NaN if no row has a value. A row without a value lacks all three."""
    total = sum(map(mul, means, weights))
    if total == total:  # noqa: PLR0124 - NaN is the only number that differs from itself
        return Summary(min(lows), total / sum(weights), max(highs))
    if not any(map(eq, means, means)):  # the usual case for metrics that a GPU does not support
        return _NOTHING
    known = [values for values in zip(lows, means, highs, weights, strict=True) if values[1] == values[1]]
    return _combined(*zip(*known, strict=True))


def _row_of(readings: Mapping[str, float]) -> "array[float]":
    """The readings in the order of the catalogue, without values that are out of bounds."""
    values = list(map(readings.get, _IDS, repeat(nan)))
    if any(map(lt, values, _MINIMA)) or any(map(gt, values, _MAXIMA)):
        values = [
            value if low <= value <= high else nan for value, low, high in zip(values, _MINIMA, _MAXIMA, strict=True)
        ]
    return array("f", values)


def _summary(rows: Iterable[Row], position: int) -> Summary | None:
    known = [
        (row.lows[position], mean, row.highs[position], row.weight)
        for row in rows
        if not isnan(mean := row.means[position])
    ]
    if not known:
        return None
    low, mean, high = _combined(*zip(*known, strict=True))
    return Summary(low, min(max(low, mean), high), high)  # the mean is rounded, and may be outside the range
