"""Fixed-size history of one value on a bucket clock.

A bucket is a stretch of time; every reading that falls into it is averaged. What was not measured is a gap, not zero.
"""

from array import array
from math import isnan, nan


class Ring:
    """The last ``size`` buckets of one value.

    Args:
        size: Number of buckets kept; memory never grows beyond it.
        bucket_seconds: Width of a bucket.
    """

    __slots__ = ("_count", "_newest", "_values", "bucket_seconds")

    def __init__(self, size: int, bucket_seconds: float) -> None:
        if size < 1 or bucket_seconds <= 0:
            raise ValueError("a ring needs at least one bucket of some width")
        self.bucket_seconds = bucket_seconds
        self._values = array("d", [nan]) * size
        self._newest: int | None = None
        self._count = 0

    def __len__(self) -> int:
        return len(self._values)

    def add(self, seconds: float, value: float | None) -> None:
        """Adds a reading at ``seconds`` on a clock that does not run backwards; None leaves a gap.

        A time older than the newest bucket is dropped: what is drawn already stays as it was drawn.
        """
        bucket = int(seconds // self.bucket_seconds)
        if self._newest is None:
            self._newest = bucket
        elif bucket > self._newest:
            self._advance(bucket)
        elif bucket < self._newest:
            return
        if value is None:
            return
        slot = bucket % len(self._values)
        held = self._values[slot]
        self._values[slot] = value if isnan(held) else held + (value - held) / (self._count + 1)
        self._count += 1

    def tail(self, count: int) -> list[float | None]:
        """The newest ``count`` buckets, oldest first; None where nothing was measured."""
        size = len(self._values)
        if self._newest is None:
            return [None] * count
        first = self._newest - count + 1
        oldest_kept = self._newest - size + 1
        found: list[float | None] = []
        for bucket in range(first, self._newest + 1):
            value = self._values[bucket % size] if bucket >= oldest_kept else nan
            found.append(None if isnan(value) else value)
        return found

    def _advance(self, bucket: int) -> None:
        assert self._newest is not None
        size = len(self._values)
        for skipped in range(max(self._newest + 1, bucket - size + 1), bucket + 1):
            self._values[skipped % size] = nan
        self._newest = bucket
        self._count = 0
