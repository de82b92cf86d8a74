"""The memory of one process on one device over time: bounded, in buckets of a second, with its peak and its marks."""

from array import array
from collections import deque
from enum import Enum
from math import isnan, nan
from typing import Final, NamedTuple

from gpumon.core.allocator import AllocatorStatistics

_BUCKETS: Final = 3600
_BUCKET_SECONDS: Final = 1.0
_MOST_MARKS: Final = 128


class Series(Enum):
    """What is remembered."""

    ALLOCATED = "allocated"
    RESERVED = "reserved"
    HELD = "held"
    """All that the process holds, as NVML says."""


class MarkKind(Enum):
    """What happened at a moment."""

    RETRY = "retry"
    """The driver had no memory until the cache was given back."""
    OOM = "oom"


class Mark(NamedTuple):
    """So many of a kind at a moment (monotonic seconds)."""

    seconds: float
    kind: MarkKind
    times: int


class Peak(NamedTuple):
    """The most that was allocated, by the process's own books, and when it was first seen."""

    bytes: int
    seconds: float


class MemoryCourse:
    """What a process held, the highest of each second for an hour.

    Attributes:
        marks: When the allocator met its limits, the newest last.
        peak: The highest of what was allocated, as the process counts it; None where it does not.
    """

    def __init__(self) -> None:
        self.marks: deque[Mark] = deque(maxlen=_MOST_MARKS)
        self.peak: Peak | None = None
        self._values = {series: array("d", [nan]) * _BUCKETS for series in Series}
        self._newest: dict[Series, int] = {}
        self._counted: tuple[int | None, int | None] | None = None

    def tell(self, seconds: float, told: AllocatorStatistics) -> None:
        """Adds what the allocator says; what it counted before it was first seen is no mark."""
        self.add(Series.ALLOCATED, seconds, told.allocated_bytes)
        self.add(Series.RESERVED, seconds, told.reserved_bytes)
        counts = (told.alloc_retries_count, told.ooms_count)
        for kind, now, before in zip((MarkKind.RETRY, MarkKind.OOM), counts, self._counted or counts, strict=True):
            if now is not None and before is not None and now > before:
                self.marks.append(Mark(seconds, kind, now - before))
        self._counted = counts
        peak = told.allocated_peak_bytes
        if peak is not None and (self.peak is None or peak != self.peak.bytes):  # it falls when the user resets it
            self.peak = Peak(peak, seconds)

    def add(self, series: Series, seconds: float, value: int) -> None:
        """Adds a value; one from before the newest second is dropped, since what is drawn stays."""
        bucket = int(seconds // _BUCKET_SECONDS)
        newest = self._newest.get(series, bucket)
        if bucket < newest:
            return
        values = self._values[series]
        for skipped in range(max(newest + 1, bucket - _BUCKETS + 1), bucket + 1):
            values[skipped % _BUCKETS] = nan
        self._newest[series] = bucket
        place = bucket % _BUCKETS
        values[place] = value if isnan(values[place]) else max(value, values[place])

    def columns(
        self, series: Series, first: int, count: int, column_seconds: float, held_seconds: float
    ) -> list[float | None]:
        """The highest of each column; None where nothing was measured.

        Args:
            series: What.
            first: Number of the first column; column n begins at ``n * column_seconds``.
            count: Number of columns.
            column_seconds: Width of a column, a whole number of seconds.
            held_seconds: A value holds until the next one, at most so long.
        """
        newest = self._newest.get(series)
        if newest is None:
            return [None] * count
        holds = int(held_seconds // column_seconds)
        found: list[float | None] = []
        last, age = None, 0
        for column in range(first - holds, first + count):
            value = self._highest(series, newest, int(column * column_seconds), int(column_seconds))
            last, age = (value, 0) if value is not None else (last, age + 1)
            found.append(last if age <= holds else None)
        return found[holds:]

    def _highest(self, series: Series, newest: int, begin: int, seconds: int) -> float | None:
        values = self._values[series]
        kept = range(max(begin, newest - _BUCKETS + 1), min(begin + seconds, newest + 1))
        known = [value for bucket in kept if not isnan(value := values[bucket % _BUCKETS])]
        return max(known, default=None)
