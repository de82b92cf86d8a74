"""The memory of one process on one device over time: bounded, in buckets of one second, with its peak and its marks."""

from __future__ import annotations

from array import array
from collections import deque
from enum import Enum
from math import isnan, nan
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from gpumon.core.allocator import AllocatorStatistics

_BUCKETS: Final = 3600
_BUCKET_SECONDS: Final = 1.0
_MAX_MARKS: Final = 128


class Series(Enum):
    """What is stored."""

    ALLOCATED = "allocated"
    RESERVED = "reserved"
    HELD = "held"
    """All device memory of the process, as NVML reports."""


class MarkKind(Enum):
    """An event at one moment."""

    RETRY = "retry"
    """The driver had no free memory until PyTorch released its cache."""
    OOM = "oom"


class Mark(NamedTuple):
    """How often an event occurred at a moment (monotonic seconds)."""

    seconds: float
    kind: MarkKind
    times: int


class Peak(NamedTuple):
    """The most that PyTorch allocated by its own count, and when gpumon first saw that value (monotonic seconds)."""

    bytes: int
    seconds: float


class MemoryHistory:
    """The memory that a process held, as the maximum of each second for one hour.

    Attributes:
        marks: Retries and out-of-memory errors of the allocator, the newest last.
        peak: The peak of allocated memory as the process counts it; None where it does not.
    """

    def __init__(self) -> None:
        self.marks: deque[Mark] = deque(maxlen=_MAX_MARKS)
        self.peak: Peak | None = None
        self._values = {series: array("d", [nan]) * _BUCKETS for series in Series}
        self._newest: dict[Series, int] = {}
        self._counts: tuple[int | None, int | None] | None = None

    def record(self, seconds: float, statistics: AllocatorStatistics) -> None:
        """Add the allocator's statistics; what it counted before the first ones is not a mark."""
        self.add(Series.ALLOCATED, seconds, statistics.allocated_bytes)
        self.add(Series.RESERVED, seconds, statistics.reserved_bytes)
        counts = (statistics.alloc_retries_count, statistics.ooms_count)
        for kind, now, before in zip((MarkKind.RETRY, MarkKind.OOM), counts, self._counts or counts, strict=True):
            if now is not None and before is not None and now > before:
                self.marks.append(Mark(seconds, kind, now - before))
        self._counts = counts
        peak = statistics.allocated_peak_bytes
        if peak is not None and (self.peak is None or peak != self.peak.bytes):  # it falls when the program resets it
            self.peak = Peak(peak, seconds)

    def add(self, series: Series, seconds: float, value: int) -> None:
        """Add a value; one from before the newest second is dropped, because columns that are drawn never change."""
        bucket = int(seconds // _BUCKET_SECONDS)
        newest = self._newest.get(series, bucket)
        if bucket < newest:
            return
        values = self._values[series]
        for skipped in range(max(newest + 1, bucket - _BUCKETS + 1), bucket + 1):
            values[skipped % _BUCKETS] = nan
        self._newest[series] = bucket
        position = bucket % _BUCKETS
        values[position] = value if isnan(values[position]) else max(value, values[position])

    def columns(
        self, series: Series, first: int, count: int, column_seconds: float, max_hold_seconds: float
    ) -> list[float | None]:
        """The maximum of each column; None where nothing was measured.

        Args:
            series: What to read.
            first: Number of the first column; column n starts at ``n * column_seconds``.
            count: Number of columns.
            column_seconds: Width of a column, a whole number of seconds.
            max_hold_seconds: A value holds until the next one, at most this long.
        """
        newest = self._newest.get(series)
        if newest is None:
            return [None] * count
        max_hold = int(max_hold_seconds // column_seconds)
        first_kept = int((newest - _BUCKETS) * _BUCKET_SECONDS // column_seconds)
        begin = max(first - max_hold, min(first, first_kept))
        columns: list[float | None] = []
        last, age = None, 0
        for column in range(begin, first + count):
            value = self._maximum(series, newest, int(column * column_seconds), int(column_seconds))
            last, age = (value, 0) if value is not None else (last, age + 1)
            columns.append(last if age <= max_hold else None)
        return columns[first - begin :]

    def _maximum(self, series: Series, newest: int, start: int, seconds: int) -> float | None:
        values = self._values[series]
        stored = range(max(start, newest - _BUCKETS + 1), min(start + seconds, newest + 1))
        known = [value for bucket in stored if not isnan(value := values[bucket % _BUCKETS])]
        return max(known, default=None)
