"""A history as a strip of blocks, one cell a bucket, on a fixed scale. A gap is a dot: nothing was measured there."""

from collections.abc import Collection, Sequence
from typing import Final

BLOCKS: Final = "▁▂▃▄▅▆▇█"
IDLE: Final = "_"
GAP: Final = "·"
MARK: Final = "┆"
_IDLE_SHARE: Final = 0.01


def strip(values: Sequence[float | None], maximum: float | None, marks: Collection[int] = ()) -> str:
    """One character a value: idle below one percent of ``maximum``, then blocks up to the full one.

    Before the first value there is nothing to tell, so nothing is drawn.

    Args:
        values: Oldest first; None for a gap.
        maximum: The top of the scale.
        marks: Places at which a mark stands instead, since something begins or ends there.
    """
    drawn = ""
    if maximum:
        drawn = "".join(GAP if value is None else _block(min(1.0, value / maximum)) for value in values).lstrip(GAP)
    drawn = drawn.rjust(len(values))
    return "".join(MARK if place in marks else cell for place, cell in enumerate(drawn)) if marks else drawn


def _block(share: float) -> str:
    if share < _IDLE_SHARE:
        return IDLE
    return BLOCKS[min(int(share * len(BLOCKS)), len(BLOCKS) - 1)]
