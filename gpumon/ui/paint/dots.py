"""A line through points in braille dots, for the few columns that a moving chart gains at a tick.

It is drawn by plotext's own rule, so that it goes on where plotext's drawing ends. plotext builds a whole figure for
each drawing, which takes half a millisecond however small it is; this takes a tenth.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import floor
from typing import Final

DOTS_ACROSS: Final = 2
"""Dots of a cell from left to right."""
_DOTS_DOWN: Final = 4
_BLANK: Final = 0x2800
_BITS: Final = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))
"""Bit of a dot by its height over the cell's bottom, and its place from the left."""
_DIGITS: Final = 8
"""plotext rounds to so many digits before it cuts off, so that 9.999999999 is 10."""

Stretch = tuple[Sequence[int], Sequence[float]]
"""Places of dots from the left edge, and the value at each."""


def dotted(stretches: Iterable[Stretch], top: float, width: int, height: int) -> tuple[str, ...]:
    """Rows of text, the top one first, with a line through each stretch.

    Args:
        stretches: What is drawn; every value is between 0 and ``top``.
        top: The value at the top edge; the bottom edge is 0.
        width: Cells of a row.
        height: Rows.
    """
    cells = [[0] * width for _ in range(height)]
    highest = _DOTS_DOWN * height - 1
    for places, values in stretches:
        heights = [floor(round(0.5 + highest * value / top, _DIGITS)) for value in values]
        for across, up in _line(list(zip(places, heights, strict=True))):
            cells[-1 - up // _DOTS_DOWN][across // DOTS_ACROSS] |= _BITS[up % _DOTS_DOWN][across % DOTS_ACROSS]
    return tuple("".join(chr(_BLANK + cell) if cell else " " for cell in row) for row in cells)


def _line(points: Sequence[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """The points and, between each two, a dot in every column or row, whichever are more."""
    yield points[0]
    for (left, low), (right, high) in pairwise(points):
        steps = max(abs(right - left), abs(high - low))
        if steps:
            across, up = (right - left) / steps, (high - low) / steps
            yield from ((int(left + step * across), int(low + step * up)) for step in range(1, steps + 1))
