"""A history as a strip of blocks, one cell a bucket, on a fixed scale. A gap is a dot: nothing was measured there."""

from collections.abc import Sequence
from typing import Final

BLOCKS: Final = "▁▂▃▄▅▆▇█"
IDLE: Final = "_"
GAP: Final = "·"
_IDLE_SHARE: Final = 0.01


def strip(values: Sequence[float | None], maximum: float | None) -> str:
    """One character a value: idle below one percent of ``maximum``, then blocks up to the full one.

    Before the first value there is nothing to tell, so nothing is drawn.
    """
    if not maximum:
        return " " * len(values)
    drawn = "".join(GAP if value is None else _block(min(1.0, value / maximum)) for value in values)
    return drawn.lstrip(GAP).rjust(len(values))


def _block(share: float) -> str:
    if share < _IDLE_SHARE:
        return IDLE
    return BLOCKS[min(int(share * len(BLOCKS)), len(BLOCKS) - 1)]
