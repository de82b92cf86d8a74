"""A history as one line of block characters, one cell per bucket, on a fixed scale."""

from collections.abc import Collection, Sequence
from typing import Final

BLOCKS: Final = "▁▂▃▄▅▆▇█"
IDLE: Final = "_"
GAP: Final = "·"
"""A bucket in which nothing was measured."""
MARK: Final = "┆"
_LEFT: Final = (0, 0x40, 0x44, 0x46, 0x47)
_RIGHT: Final = (0, 0x80, 0xA0, 0xB0, 0xB8)
_DOTTED: Final = tuple(tuple(chr(0x2800 + left + right) for right in _RIGHT) for left in _LEFT)
"""The cell between two levels of up to four dots."""
_MIN_SHARE: Final = 0.01
"""Below this share of the scale a value is drawn as idle."""


def sparkline(values: Sequence[float | None], maximum: float | None, marks: Collection[int] = ()) -> str:
    """One character per value: idle below one percent of ``maximum``, then rising blocks. Leading gaps are left blank.

    Args:
        values: Oldest first; None for a gap.
        maximum: The top of the scale.
        marks: Indices at which a mark is drawn instead, because something started or ended there.
    """
    cells = ""
    if maximum:
        shares = (None if value is None else value / maximum for value in values)
        drawn = (GAP if share is None else IDLE if share < _MIN_SHARE else block(100 * share) for share in shares)
        cells = "".join(drawn).lstrip(GAP)
    cells = cells.rjust(len(values))
    return "".join(MARK if index in marks else cell for index, cell in enumerate(cells)) if marks else cells


def dotted_history(values: Sequence[float | None], maximum: float | None, marks: Collection[int] = ()) -> str:
    """A history in braille, which does not touch the one in the next row; gaps and marks are those of `sparkline`.

    A cell rises or falls from the value before to its own; a value that is idle has the lowest dots.
    """
    cells, before = "", None
    for value in values if maximum else ():
        level = None if value is None else max(1, min(4, round(4 * value / (maximum or 1.0))))
        cells += GAP if level is None else _DOTTED[level if before is None else before][level]
        before = level
    cells = cells.lstrip(GAP).rjust(len(values))
    return "".join(MARK if index in marks else cell for index, cell in enumerate(cells)) if marks else cells


def block(percent: float) -> str:
    """The block of a share, which is at least the lowest one."""
    return BLOCKS[max(0, min(int(percent / 100 * len(BLOCKS)), len(BLOCKS) - 1))]
