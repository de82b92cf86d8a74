"""Amounts over time that contain one another, on one scale in braille dots: the innermost filled, the others lines.

They are told apart by form, and by their order, which is always the same: a line is never below what it contains.
"""

from collections.abc import Sequence
from typing import Final

from gpumon.ui.paint.line import Line, Role, Span, merged

_DOTS_DOWN: Final = 4
_BLANK: Final = 0x2800
_LEFT: Final = (0x40, 0x04, 0x02, 0x01)
"""Bits of the left dots of a cell, from its bottom."""
_RIGHT: Final = (0x80, 0x20, 0x10, 0x08)

Course = Sequence[float | None]


def layers(filled: Course, solid: Course, dotted: Course, top: float, height: int) -> list[Line]:
    """Rows from the top one, a cell a column.

    Args:
        filled: The innermost amount, oldest first; None is a gap.
        solid: An amount that contains it, drawn as a line.
        dotted: One that contains both, drawn as a line of every other dot.
        top: The amount at the top edge; the bottom edge is 0.
        height: Rows.
    """
    width = len(filled)
    cells = [[0] * width for _ in range(height)]
    roles = [[Role.PLAIN] * width for _ in range(height)]
    dots = _DOTS_DOWN * height
    for column, value in enumerate(filled):
        for up in range(_dots(value, top, dots)):
            row = -1 - up // _DOTS_DOWN
            cells[row][column] |= _LEFT[up % _DOTS_DOWN] | _RIGHT[up % _DOTS_DOWN]
            roles[row][column] = Role.MEMORY_HISTORY
    for course, is_solid in ((solid, True), (dotted, False)):
        before = 0
        for column, value in enumerate(course):
            now = _dots(value, top, dots)
            if now:
                _draw(cells, column, now, before or now, is_solid=is_solid)
            before = now
    return [
        merged(Span(chr(_BLANK + cell) if cell else " ", role) for cell, role in zip(row, looks, strict=True))
        for row, looks in zip(cells, roles, strict=True)
    ]


def _draw(cells: list[list[int]], column: int, now: int, before: int, *, is_solid: bool) -> None:
    """A step of a line: an upright from where it was, and a level stretch."""
    for dot in range(min(before, now), max(before, now) + 1):
        if is_solid or dot % 2:
            cells[-1 - (dot - 1) // _DOTS_DOWN][column] |= _LEFT[(dot - 1) % _DOTS_DOWN]
    level = (now - 1) % _DOTS_DOWN
    cells[-1 - (now - 1) // _DOTS_DOWN][column] |= _LEFT[level] | (_RIGHT[level] if is_solid else 0)


def _dots(value: float | None, top: float, dots: int) -> int:
    """How many dots high a value stands; one that is not zero has a dot at least."""
    if not value or top <= 0:
        return 0
    return max(1, min(dots, round(value / top * dots)))
