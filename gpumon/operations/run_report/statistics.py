"""Values over a time of any length in bounded memory, and whether two sets of them differ.

That is a blocked bootstrap, because steps that follow each other are alike.
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import expm1, hypot, log
from statistics import NormalDist, fmean
from typing import Final

from gpumon.core.paired import RelativeChange, trend_of

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


_RESAMPLES: Final = 500
_MIN_BLOCKS: Final = 8
_MAX_BLOCKS: Final = 20
_TRIMMED: Final = 0.25
"""The slowest and fastest quarter of the steps of a block: checkpoints and other pauses are not what is compared."""
_MAX_CORRELATION: Final = 0.9
_SEED: Final = 20_240_229
"""The same input has the same answer."""

Point = tuple[float, float]
"""A mean duration in seconds and the number of steps that have it."""


def difference(base: Sequence[Point], new: Sequence[Point], confidence: float = 0.95) -> RelativeChange | None:
    """The change of the typical duration, with a confidence interval; None for too few measurements.

    Each set is cut into blocks of adjacent values. The blocks without their trend are drawn with replacement; what
    adjacent blocks have in common widens the interval, and so does half of the trend, by which the mean of another run
    of the same program can differ.
    Both sets are in order of time. ``confidence`` is the share of such intervals that contain the true change.
    """
    blocks = [_blocks(base), _blocks(new)]
    if min(map(len, blocks)) < _MIN_BLOCKS or min(map(min, blocks)) <= 0.0:
        return None
    means = [_mean(part) for part in blocks]
    trends = [trend_of(part) for part in blocks]
    level = [
        [value - at for value, at in zip(part, trend, strict=True)] for part, trend in zip(blocks, trends, strict=True)
    ]
    generator = random.Random(_SEED)  # noqa: S311 - no secret
    draws = sorted(
        log(_mean(generator.choices(level[1], k=len(level[1]))) / _mean(generator.choices(level[0], k=len(level[0]))))
        for _ in range(_RESAMPLES)
    )
    tail = (1.0 - confidence) / 2.0
    widened = [(1.0 + part) / (1.0 - part) for part in map(_correlation, level)]
    drift = NormalDist().inv_cdf(1.0 - tail) * hypot(
        *(trend[-1] / mean for trend, mean in zip(trends, means, strict=True))
    )
    center, ratio = log(_mean(level[1]) / _mean(level[0])), log(means[1] / means[0])
    ends = draws[int(tail * _RESAMPLES)], draws[min(_RESAMPLES - 1, int((1.0 - tail) * _RESAMPLES))]
    half = [hypot((end - center) * max(widened) ** 0.5, drift) for end in ends]
    return RelativeChange(expm1(ratio), expm1(ratio - half[0]), expm1(ratio + half[1]))


def _blocks(points: Sequence[Point]) -> list[float]:
    """The typical duration of each block: the mean of its points without the extremes."""
    count = min(_MAX_BLOCKS, len(points) // 3)
    size = len(points) / count if count else 0.0
    cut = [points[int(number * size) : int((number + 1) * size)] for number in range(count)]
    return [_trimmed(block) for block in cut if block]


def _trimmed(points: Sequence[Point]) -> float:
    ordered = sorted(points)
    total = sum(count for _, count in ordered)
    low, high = _TRIMMED * total, (1.0 - _TRIMMED) * total
    sum_seconds = weight = at = 0.0
    for value, count in ordered:
        inside = max(0.0, min(at + count, high) - max(at, low))
        sum_seconds += value * inside
        weight += inside
        at += count
    return sum_seconds / weight if weight else ordered[len(ordered) // 2][0]


def _mean(values: Sequence[float]) -> float:
    """The mean of blocks without the highest and lowest tenth."""
    ordered = sorted(values)
    cut = len(ordered) // 10
    return fmean(ordered[cut : len(ordered) - cut])


def _correlation(values: Sequence[float]) -> float:
    """The correlation of adjacent values, from 0 to `_MAX_CORRELATION`."""
    mean = fmean(values)
    spread = sum((value - mean) ** 2 for value in values)
    common = sum((first - mean) * (second - mean) for first, second in pairwise(values))
    return min(_MAX_CORRELATION, max(0.0, common / spread)) if spread else 0.0
