"""Whether the memory of a process only ever grows, and how fast."""

from collections import deque
from itertools import pairwise
from typing import Final, NamedTuple

WINDOW_SECONDS: Final = 600.0
_STEP_SECONDS: Final = 10.0
_POINTS: Final = int(WINDOW_SECONDS / _STEP_SECONDS) + 1
_PARTS: Final = 4
_LEAST_SHARE_OF_A_PART: Final = 0.1
"""Of the growth of all the time; memory that is taken at the beginning and then kept has parts without."""
_MOST_GIVEN_BACK: Final = 0.05
"""Of what was taken; who gives back more has no leak."""


class Growth(NamedTuple):
    """How something has grown.

    Attributes:
        bytes: By how much.
        seconds: In what time.
        bytes_per_second: How fast, by the line of least squares.
    """

    bytes: float
    seconds: float
    bytes_per_second: float


class Trend:
    """Memory of a process over the last minutes, a point every ten seconds."""

    __slots__ = ("_ages", "_points")

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=_POINTS)
        self._ages = 0.0

    def add(self, seconds: float, held_bytes: float, age_seconds: float | None) -> None:
        """Adds what is held at a moment; a process that is younger than before is another one with its PID."""
        age = age_seconds or 0.0
        if age < self._ages - 1.0:
            self._points.clear()
        self._ages = age
        if not self._points or seconds - self._points[-1][0] >= _STEP_SECONDS:
            self._points.append((seconds, held_bytes))

    def growth(self, least_seconds: float, least_bytes: float) -> Growth | None:
        """The growth, if it goes on in every part of the time and hardly anything is given back; else None.

        Args:
            least_seconds: Over less time than that nothing is said.
            least_bytes: Nor of less growth than that.
        """
        points = self._points
        if len(points) < 2 * _PARTS:
            return None
        (begin, first), (end, last) = points[0], points[-1]
        grown, seconds = last - first, end - begin
        if grown < max(least_bytes, 1.0) or seconds < least_seconds or not _is_steady([held for _, held in points]):
            return None
        return Growth(grown, seconds, _slope(list(points)))


def _is_steady(held: list[float]) -> bool:
    """Whether every part of the time has its share of the growth, and next to nothing is given back."""
    grown = held[-1] - held[0]
    steps = [after - before for before, after in pairwise(held)]
    given_back = -sum(step for step in steps if step < 0)
    if given_back > _MOST_GIVEN_BACK * (grown + given_back):
        return False
    marks = [held[place * (len(held) - 1) // _PARTS] for place in range(_PARTS + 1)]
    return all(after - before >= _LEAST_SHARE_OF_A_PART * grown for before, after in pairwise(marks))


def _slope(points: list[tuple[float, float]]) -> float:
    """Of the line that is nearest to all points."""
    count = len(points)
    middle = sum(seconds for seconds, _ in points) / count
    mean = sum(held for _, held in points) / count
    spread = sum((seconds - middle) ** 2 for seconds, _ in points)
    return sum((seconds - middle) * (held - mean) for seconds, held in points) / spread
