"""A history as one line of block characters, one cell per bucket, on a fixed scale."""

from collections.abc import Collection, Sequence
from typing import Final

BLOCKS: Final = "▁▂▃▄▅▆▇█"
IDLE: Final = "_"
GAP: Final = "·"
"""A bucket in which nothing was measured."""
MARK: Final = "┆"
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
        cells = "".join(GAP if value is None else _block(min(1.0, value / maximum)) for value in values).lstrip(GAP)
    cells = cells.rjust(len(values))
    return "".join(MARK if index in marks else cell for index, cell in enumerate(cells)) if marks else cells


def _block(share: float) -> str:
    if share < _MIN_SHARE:
        return IDLE
    return BLOCKS[min(int(share * len(BLOCKS)), len(BLOCKS) - 1)]
