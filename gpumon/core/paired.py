"""The change between two programs that ran in turns on one host, with its confidence interval.

`workloads/_kit` has a link to this file, for interpreters without gpumon: standard library, Python 3.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import expm1
from statistics import fmean
from typing import Final, NamedTuple

_STUDENT_95: Final = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160)
"""Student's t for 95 %, by degrees of freedom from one on."""


class RelativeChange(NamedTuple):
    """The relative change from one set to another.

    Attributes:
        change: The estimate: 0.05 if the second is 5 % longer.
        low: The lower end of the confidence interval.
        high: Its upper end.
    """

    change: float
    low: float
    high: float

    @property
    def is_shown(self) -> bool:
        """Whether the interval leaves out zero."""
        return not self.low <= 0.0 <= self.high


def paired_change(logs: Sequence[float], is_new: Sequence[bool]) -> RelativeChange:
    """The change from one program to another that ran in turns, with an interval of 95 %.

    A run is one measurement: processes of the same program differ by more than their steps do. A linear drift, which
    rounds of A B B A share equally, is taken out; what remains within each program is the error.

    Args:
        logs: Logarithms of the step times of the runs, in order; rounds of A B B A.
        is_new: Which of them are of the second program.
    """
    level = [logs[index] - at for index, at in enumerate(trend_of(logs))]
    sides = [[value for index, value in enumerate(level) if is_new[index] is side] for side in (False, True)]
    means = [fmean(side) for side in sides]
    freedom = len(level) - 3
    spread = sum((value - means[number]) ** 2 for number, side in enumerate(sides) for value in side) / freedom
    error = (spread * sum(1 / len(side) for side in sides)) ** 0.5
    half = _STUDENT_95[min(freedom, len(_STUDENT_95)) - 1] * error
    ratio = means[1] - means[0]
    return RelativeChange(expm1(ratio), expm1(ratio - half), expm1(ratio + half))


def trend_of(values: Sequence[float]) -> list[float]:
    """The straight line through values, without their mean."""
    middle, mean = (len(values) - 1) / 2.0, fmean(values)
    spread = sum((number - middle) ** 2 for number in range(len(values)))
    slope = sum((number - middle) * (value - mean) for number, value in enumerate(values)) / spread
    return [slope * (number - middle) for number in range(len(values))]
