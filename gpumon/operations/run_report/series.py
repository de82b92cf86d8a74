"""Values over a time of any length in bounded memory, and their distribution."""

import math
from collections import Counter
from typing import Final

_PER_E: Final = 50
"""Buckets of a histogram for each factor of e: a bucket is 2 % wide."""


class BoundedSeries:
    """Weighted means over columns of equal width, which doubles when the columns are full."""

    def __init__(self, columns: int = 240, width_seconds: float = 1.0) -> None:
        self.width_seconds = width_seconds
        self._columns = columns
        self._start: float | None = None
        self._sums: list[float] = []
        self._weights: list[float] = []

    def add(self, seconds: float, value: float | None, weight: float = 1.0) -> None:
        """Add a value at a moment; moments before the first one are left out."""
        if self._start is None:
            self._start = seconds
        if value is None or seconds < self._start:
            return
        while (index := int((seconds - self._start) / self.width_seconds)) >= self._columns:
            for values in (self._sums, self._weights):
                values[:] = [sum(values[start : start + 2]) for start in range(0, len(values), 2)]
            self.width_seconds *= 2.0
        missing = index + 1 - len(self._sums)
        self._sums += [0.0] * missing
        self._weights += [0.0] * missing
        self._sums[index] += value * weight
        self._weights[index] += weight

    def means(self) -> list[float | None]:
        """The mean of each column; None for one without a value."""
        return [total / weight if weight else None for total, weight in zip(self._sums, self._weights, strict=True)]

    def weights(self) -> list[float]:
        """The weight of each column."""
        return list(self._weights)


class Histogram:
    """The distribution of positive values, exact to 2 %."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()

    def add(self, value: float, count: int = 1) -> None:
        """Add a value a number of times."""
        if value > 0.0:
            self._buckets[round(math.log(value) * _PER_E)] += count

    def quantile(self, share: float) -> float | None:
        """The value below which a share of the values is; None without values."""
        left = share * self._buckets.total()
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0.0:
                return math.exp(bucket / _PER_E)
        return None

    def bars(self) -> list[tuple[float, int]]:
        """The middle of each bucket with its number of values, in order."""
        return [(math.exp(bucket / _PER_E), self._buckets[bucket]) for bucket in sorted(self._buckets)]
