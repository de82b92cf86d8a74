"""Bars on one line: a progress bar, the parts of a total, and pointers under a bar."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.present.paint.line import Line, Role, Span, merged

DONE: Final = "█"
LEFT: Final = "░"
_MAX_BARS: Final = 256
"""Number of cached bars; a column of one width needs two per cell."""
_FULL: Final = "━"
_HALF: Final = "╸"
_EMPTY: Final = "─"


def fine_bar(share: float | None, width: int, role: Role) -> Line:
    """A bar in steps of half a cell, which does not touch that of the next row. Only everything is full.

    Args:
        share: Filled share, 0 to 1; None is drawn like 0, and its text says that it is missing.
        width: Cells of the complete bar.
        role: Role of the filled part.
    """
    cells = 2 * width
    halves = round(max(0.0, min(1.0, share or 0.0)) * cells)
    if share and 0 < share < 1:
        halves = max(1, min(cells - 1, halves))
    return _bar(halves, width, role)


@lru_cache(maxsize=_MAX_BARS)
def _bar(halves: int, width: int, role: Role) -> Line:
    """A bar by the number of filled halves: shares as keys would fill the cache with bars that look the same."""
    filled = _FULL * (halves // 2) + _HALF * (halves % 2)
    return merged((Span(filled[:width], role), Span(_EMPTY * (width - len(filled)), Role.GRID)))


class Extent(NamedTuple):
    """The cells of a part in a bar, from ``begin`` up to, but not including, ``end``."""

    begin: int
    end: int


def progress_bar(share: float | None, width: int) -> str:
    """A bar that is full only at a share of 1, and empty while the share is unknown."""
    done = int(max(0.0, min(1.0, share or 0.0)) * width)
    return (DONE * done).ljust(width, LEFT)


def extents(sizes: Sequence[float], scale: float, width: int) -> list[Extent]:
    """Where each part lies in a bar. A part that is not empty gets at least one cell where there is room.

    Args:
        sizes: Size of each part, in the order of the bar.
        scale: Size that the complete bar stands for.
        width: Cells of the complete bar.
    """
    result: list[Extent] = []
    begin, total = 0, 0.0
    for size in sizes:
        total += size
        end = min(width, round(total / scale * width)) if scale > 0 else 0
        end = min(width, max(end, begin + (size > 0)))
        result.append(Extent(begin, end))
        begin = end
    last = width
    if sum(size > 0 for size in sizes) > width:
        return result
    for index in range(len(result) - 1, -1, -1):  # small parts at the end take their cell from those before them
        begin, end = result[index]
        end = min(end, last)
        last = begin = max(0, min(begin, end - (sizes[index] > 0)))
        result[index] = Extent(begin, end)
    return result


def stacked_bar(parts: Sequence[tuple[float, str]], scale: float, width: int) -> str:
    """A bar of parts, each drawn with its glyph in the cells that `extents` assigns to it.

    Args:
        parts: Size and glyph of each part.
        scale: Size that the complete bar stands for.
        width: Cells of the complete bar.
    """
    cells = extents([size for size, _ in parts], scale, width)
    drawn = "".join(glyph * (extent.end - extent.begin) for (_, glyph), extent in zip(parts, cells, strict=True))
    return drawn.ljust(width)


def pointers(marks: Sequence[tuple[float, str]], scale: float, width: int) -> str:
    """A line under a bar that points at sizes: an arrow and its label each, where there is room for them.

    Args:
        marks: Size and label of each, in rising order.
        scale: Size that the complete bar stands for.
        width: Cells of the complete bar.
    """
    line = ""
    for size, label in marks:
        position = min(width - 1, int(size / scale * width)) if scale > 0 else 0
        right, left = f"▲ {label}", f"{label} ▲"
        if position >= len(line) and position + len(right) <= width:
            line = line.ljust(position) + right + "  "
        elif position + 1 - len(left) >= len(line):
            line = line.ljust(position + 1 - len(left)) + left
        elif position >= len(line):
            line = line.ljust(position) + "▲"
    return line.rstrip()
