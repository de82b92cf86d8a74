"""Up to three nested amounts over time on one scale in braille dots: the innermost filled, the outer two as lines.

The form distinguishes the amounts, and so does their order, which is fixed: a line is never below what it contains.
"""

from collections.abc import Sequence
from typing import Final

from gpumon.present.paint.chart import BLANK, DOTS_DOWN
from gpumon.present.paint.line import Line, Role, Span, merged

_LEFT: Final = (0x40, 0x04, 0x02, 0x01)
"""Bits of the left dots of a cell, from the bottom of the cell."""
_RIGHT: Final = (0x80, 0x20, 0x10, 0x08)

Amounts = Sequence[float | None]


def layers(filled: Amounts, solid: Amounts, dotted: Amounts, top: float, height: int) -> list[Line]:
    """Rows from the top one, one cell per column.

    Args:
        filled: The innermost amount, oldest first; None is a gap.
        solid: An amount that contains ``filled``, drawn as a line.
        dotted: An amount that contains both, drawn as a line of every other dot.
        top: The amount at the top edge; the bottom edge is 0.
        height: Rows.
    """
    width = len(filled)
    cells = [[0] * width for _ in range(height)]
    roles = [[Role.PLAIN] * width for _ in range(height)]
    max_dots = DOTS_DOWN * height
    for column, value in enumerate(filled):
        for up in range(_dots(value, top, max_dots)):
            row = -1 - up // DOTS_DOWN
            cells[row][column] |= _LEFT[up % DOTS_DOWN] | _RIGHT[up % DOTS_DOWN]
            roles[row][column] = Role.MEMORY_HISTORY
    for amounts, is_solid in ((solid, True), (dotted, False)):
        before = 0
        for column, value in enumerate(amounts):
            now = _dots(value, top, max_dots)
            if now:
                _draw_step(cells, column, now, before or now, is_solid=is_solid)
            before = now
    return [
        merged(Span(chr(BLANK + cell) if cell else " ", role) for cell, role in zip(row, row_roles, strict=True))
        for row, row_roles in zip(cells, roles, strict=True)
    ]


def _draw_step(cells: list[list[int]], column: int, now: int, before: int, *, is_solid: bool) -> None:
    """Draws one step of a line: a vertical part from the height before, and a horizontal part."""
    for dot in range(min(before, now), max(before, now) + 1):
        if is_solid or dot % 2:
            cells[-1 - (dot - 1) // DOTS_DOWN][column] |= _LEFT[(dot - 1) % DOTS_DOWN]
    level = (now - 1) % DOTS_DOWN
    cells[-1 - (now - 1) // DOTS_DOWN][column] |= _LEFT[level] | (_RIGHT[level] if is_solid else 0)


def _dots(value: float | None, top: float, max_dots: int) -> int:
    """Height of a value in dots; at least one dot for a value that is not zero."""
    if not value or top <= 0:
        return 0
    return max(1, min(max_dots, round(value / top * max_dots)))
