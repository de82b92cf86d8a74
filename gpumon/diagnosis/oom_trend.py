"""How the memory of a process went in the minute before it ran out: whether it grew steadily, or a step jumped."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Final

from gpumon.diagnosis.oom_file import OomSample

_LEAST_SECONDS: Final = 10.0
_STRETCHES: Final = 4
_LEAST_RISE_BYTES: Final = 16 << 20
_LEAST_RISE_SHARE: Final = 0.1
"""Of what comes and goes in a stretch: the lowest of some thirty samples is not quite the lowest point of a step."""
_LARGEST_PART: Final = 0.6
"""A rise of which one stretch has more than this share came at once: a phase began, and nothing leaks."""
_STEP_SECONDS: Final = 2.0
"""What is younger belongs to the step that failed."""
_WORK_SHARE: Final = 0.05
"""A fall by more than this share of the rise is a step that ends; loading a model frees less than that in between."""


@dataclass(frozen=True, slots=True)
class Trend:
    """What the last minute shows.

    Attributes:
        seconds: How long it was watched.
        rise_bytes: By how much the least that tensors held grew from the first stretch to the last one. Within a
            step memory comes and goes; what is there at the lowest point of every step is what stays.
        is_steady: Whether it grew from every stretch to the next.
        is_filling: Whether it more than doubled and never came down, as while a model is brought onto the GPU.
        highest_bytes: The most that tensors were seen to hold before the step that failed.
        retries_count: How often the driver had no memory until the cache was given back; None where it is not kept.
    """

    seconds: float
    rise_bytes: int
    is_steady: bool
    is_filling: bool
    highest_bytes: int
    retries_count: int | None

    @property
    def bytes_a_minute(self) -> float:
        """How fast it grew, between the middles of the first and the last stretch."""
        return self.rise_bytes * 60 * _STRETCHES / (self.seconds * (_STRETCHES - 1))


def trend_of(history: Sequence[OomSample], retries_count: int | None) -> Trend | None:
    """What a history shows, or None if it is too short to show anything.

    Args:
        history: The oldest first.
        retries_count: How often the cache was given back until the end.
    """
    if not history or history[0].seconds_before - history[-1].seconds_before < _LEAST_SECONDS:
        return None
    begun, ended = history[0].seconds_before, history[-1].seconds_before
    stretches: list[list[int]] = [[] for _ in range(_STRETCHES)]
    for sample in history:
        passed = (begun - sample.seconds_before) / (begun - ended)
        stretches[min(_STRETCHES - 1, int(passed * _STRETCHES))].append(sample.allocated_bytes)
    if not all(stretches):
        return None
    retries = history[0].alloc_retries_count
    rise = min(stretches[-1]) - min(stretches[0])
    falls = (before.allocated_bytes - after.allocated_bytes for before, after in pairwise(history))
    return Trend(
        seconds=begun - ended,
        rise_bytes=rise,
        is_steady=_is_steady(stretches),
        is_filling=rise > min(stretches[0]) and max(falls) <= _WORK_SHARE * rise,
        highest_bytes=max(each.allocated_bytes for each in history if each.seconds_before - ended >= _STEP_SECONDS),
        retries_count=None if retries is None or retries_count is None else max(0, retries_count - retries),
    )


def _is_steady(stretches: Sequence[Sequence[int]]) -> bool:
    """Whether the lowest points grow all the time, and the means with them.

    Where the steps of a training and the samples keep almost the same time, the lowest sample creeps up or down
    although nothing grows; the means then stay.
    """
    floors = [min(each) for each in stretches]
    growths = [after - before for before, after in pairwise(floors)]
    rise, swing = floors[-1] - floors[0], min(max(each) - min(each) for each in stretches)
    is_even = min(growths) > 0 and max(growths) <= _LARGEST_PART * rise
    is_seen = rise >= max(_LEAST_RISE_BYTES, _LEAST_RISE_SHARE * swing)
    return is_even and is_seen and fmean(stretches[-1]) - fmean(stretches[0]) >= rise / 2
