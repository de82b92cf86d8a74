"""Bars of one line: a share that is done, and parts of a whole, each part with a glyph of its own."""

from collections.abc import Sequence
from typing import Final

DONE: Final = "█"
LEFT: Final = "░"


def progress_bar(share: float | None, width: int) -> str:
    """A bar that is full at 1; empty while the share is not known. It is full only when all is done."""
    done = int(max(0.0, min(1.0, share or 0.0)) * width)
    return (DONE * done).ljust(width, LEFT)


def stacked_bar(parts: Sequence[tuple[float, str]], scale: float, width: int) -> str:
    """Parts in their order, each drawn with its glyph; one that is not empty has a cell at least, where there is room.

    Args:
        parts: Size and glyph of each.
        scale: Size of the whole bar.
        width: Cells of the whole bar.
    """
    drawn, total = "", 0.0
    for size, glyph in parts:
        total += size
        end = min(width, round(total / scale * width)) if scale > 0 else 0
        cells = max(end - len(drawn), 1 if size > 0 else 0)
        drawn += glyph * min(cells, width - len(drawn))
    return drawn.ljust(width)


def pointers(marks: Sequence[tuple[float, str]], scale: float, width: int) -> str:
    """A line under a bar that points at sizes: an arrow and a text each, as far as there is room for them.

    Args:
        marks: Size and text of each, in rising order.
        scale: Size of the whole bar.
        width: Cells of the whole bar.
    """
    line = ""
    for size, text in marks:
        place = min(width - 1, int(size / scale * width)) if scale > 0 else 0
        right, left = f"▲ {text}", f"{text} ▲"
        if place >= len(line) and place + len(right) <= width:
            line = line.ljust(place) + right + "  "
        elif place + 1 - len(left) >= len(line):
            line = line.ljust(place + 1 - len(left)) + left
        elif place >= len(line):
            line = line.ljust(place) + "▲"
    return line.rstrip()
