"""The memory of a process in the minute before it ran out: whether it grew steadily, or one step needed far more."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final, NamedTuple

from gpumon.core.oom_file import OomSample

_MIN_SECONDS: Final = 10.0
_PARTS: Final = 4
_MIN_RISE_BYTES: Final = 16 << 20
_MIN_RISE_SHARE: Final = 0.1
"""Share of what a part allocates and frees, because samples miss the exact lowest point of a step."""
_MAX_PART_SHARE: Final = 0.6
"""If one part has more than this share of the rise, a new phase of the program began, and nothing leaks."""
_STEP_SECONDS: Final = 2.0
"""Samples that are younger than this belong to the step that failed."""
_END_SHARE: Final = 1 / 8
"""Share of the history that counts as its end, which is at least `_STEP_SECONDS` long."""
_MIN_END_RATE_SHARE: Final = 0.5
"""Growth continues to the end if it has at least this share of its average rate there."""
_MAX_FALL_SHARE: Final = 0.05
"""A fall by more than this share of the rise is the end of a step; loading a model frees less than that."""


class OomTrend(NamedTuple):
    """What the last minute shows.

    Attributes:
        seconds: Length of the history.
        rise_bytes: How much the minimum of allocated memory grew from the first part of the history to the last. A
            step allocates and frees memory; the memory at its lowest point stays.
        is_steady: Whether the minimum grew from every part to the next.
        only_rises: Whether it more than doubled and never fell, as while a model is loaded onto the GPU.
        rises_at_end: Whether it still grew at the end, about as fast as before.
        highest_bytes: The maximum of allocated memory in the samples before the step that failed.
        retries_count: How often the allocator freed its cache to get memory; None where it is not recorded.
    """

    seconds: float
    rise_bytes: int
    is_steady: bool
    only_rises: bool
    rises_at_end: bool
    highest_bytes: int
    retries_count: int | None

    @property
    def is_filling(self) -> bool:
        """Whether it is the growth of a model that was loaded before the failure, rather than of a leak."""
        return self.only_rises and not self.rises_at_end

    @property
    def bytes_per_minute(self) -> float:
        """The rate of growth, between the middles of the first and the last part."""
        return self.rise_bytes * 60 * _PARTS / (self.seconds * (_PARTS - 1))


def trend_of(history: Sequence[OomSample], retries_count: int | None) -> OomTrend | None:
    """The trend of a history, or None if the history is too short.

    Args:
        history: The samples, oldest first.
        retries_count: How often the allocator had freed its cache at the end.
    """
    if not history or history[0].seconds_before - history[-1].seconds_before < _MIN_SECONDS:
        return None
    begin, end = history[0].seconds_before, history[-1].seconds_before
    parts: list[list[int]] = [[] for _ in range(_PARTS)]
    for sample in history:
        passed = (begin - sample.seconds_before) / (begin - end)
        parts[min(_PARTS - 1, int(passed * _PARTS))].append(sample.allocated_bytes)
    if not all(parts):
        return None
    retries = history[0].alloc_retries_count
    rise = min(parts[-1]) - min(parts[0])
    falls = (before.allocated_bytes - after.allocated_bytes for before, after in pairwise(history))
    return OomTrend(
        seconds=begin - end,
        rise_bytes=rise,
        is_steady=_is_steady(parts),
        only_rises=rise > min(parts[0]) and max(falls) <= _MAX_FALL_SHARE * rise,
        rises_at_end=_rises_at_end(history),
        highest_bytes=max(sample.allocated_bytes for sample in history if sample.seconds_before - end >= _STEP_SECONDS),
        retries_count=None if retries is None or retries_count is None else max(0, retries_count - retries),
    )


def _rises_at_end(history: Sequence[OomSample]) -> bool:
    first, last = history[0], history[-1]
    seconds = first.seconds_before - last.seconds_before
    end_seconds = max(_STEP_SECONDS, _END_SHARE * seconds)
    start = next(sample for sample in history if sample.seconds_before - last.seconds_before <= end_seconds)
    rise, end_rise = (last.allocated_bytes - sample.allocated_bytes for sample in (first, start))
    return end_rise >= _MIN_END_RATE_SHARE * rise * end_seconds / seconds


def _is_steady(parts: Sequence[Sequence[int]]) -> bool:
    """Whether the minimum grows from part to part, and the mean with it.

    If training steps and samples have almost the same period, the lowest sample drifts although nothing grows. The mean
    does not drift then.
    """
    floors = [min(part) for part in parts]
    growths = [after - before for before, after in pairwise(floors)]
    rise, swing = floors[-1] - floors[0], min(max(part) - min(part) for part in parts)
    is_even = min(growths) > 0 and max(growths) <= _MAX_PART_SHARE * rise
    is_large = rise >= max(_MIN_RISE_BYTES, _MIN_RISE_SHARE * swing)
    return is_even and is_large and fmean(parts[-1]) - fmean(parts[0]) >= rise / 2
