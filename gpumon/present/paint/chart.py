"""Line charts in braille dots. The only module that uses plotext, which is imported when the first chart is drawn.

plotext keeps its state per process, so `chart` sets everything again for each drawing, and asks for bare dots: colors,
frame and labels are drawn by gpumon, and no escape sequence of plotext reaches the terminal. When a chart scrolls by a
few columns, `advance_chart` draws only the new columns, with plotext's own rasterization rule, and appends them. That
takes a tenth of a millisecond instead of ten: plotext builds a complete plot for every drawing, however small.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import floor
from typing import Final

from gpumon.core.timeline import Summary

DOTS_ACROSS: Final = 2
"""Dots per cell, horizontally."""
DOTS_DOWN: Final = 4
"""Dots per cell, vertically."""
BLANK: Final = 0x2800
"""Code point of the braille cell without dots."""
_BITS: Final = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))
"""Bit of a dot, by its height above the bottom of the cell and its position from the left."""
_MARKER: Final = "braille"
_DIGITS: Final = 8
"""plotext rounds to this many digits before it truncates, so that 9.999999999 counts as 10."""

Columns = Sequence[Summary | None]
Rows = tuple[str, ...]
"""Rows of text, all of the same width, the top row first."""
Segment = tuple[Sequence[int], Sequence[float]]
"""Horizontal dot positions from the left edge, and the value at each."""


def chart(columns: Columns, top: float, height: int) -> Rows:
    """Draws one cell per column: a line through the means, and a vertical line where the extremes differ from the mean.

    Args:
        columns: Oldest first; None is a gap in the line.
        top: The value at the top edge; the bottom edge is 0.
        height: Rows.
    """
    width = len(columns)
    if not width or height < 1:
        return ("",) * max(0, height)
    if top <= 0 or not any(columns):
        return (" " * width,) * height
    import plotext  # late: the import takes 30 ms, which only a screen with a chart pays

    plotext.clear_data()  # everything else is set below; clear_figure() costs more than drawing a small chart
    plotext.limit_size(False, False)
    plotext.plotsize(width, height)
    plotext.theme("clear")
    plotext.xaxes(False, False)
    plotext.yaxes(False, False)
    plotext.xticks([])
    plotext.yticks([])
    plotext.xlim(0, DOTS_ACROSS * width - 1)
    plotext.ylim(0, top)
    for positions, values in _segments(columns, top):
        plotext.plot(positions, values, marker=_MARKER)
    rows = plotext.uncolorize(plotext.build()).splitlines()
    return tuple(row[:width].ljust(width) for row in (*rows, *[""] * height)[:height])


def advance_chart(rows: Rows, columns: Columns, top: float, new: int, unsettled: int) -> Rows:
    """Returns what `chart` would draw of the columns, reusing what it drew ``new`` columns earlier.

    Args:
        rows: The chart as drawn before.
        columns: All columns now, as many as before.
        top: The value at the top edge, the same as before.
        new: Number of new columns.
        unsettled: Number of columns before the new ones whose values may have changed since they were drawn.
    """
    redrawn = new + unsettled + 1  # a line to a changed value also occupies the cell before it
    if top <= 0 or redrawn + 1 >= len(columns):
        return chart(columns, top, len(rows))
    tail = draw_segments(_segments(columns[-redrawn - 1 :], top), top, redrawn + 1, len(rows))
    kept = len(columns) - redrawn
    return tuple(old[new : new + kept] + end[1:] for old, end in zip(rows, tail, strict=True))


def draw_segments(segments: Iterable[Segment], top: float, width: int, height: int) -> Rows:
    """Draws a line through each segment by plotext's rule, so that the result continues a drawing of plotext.

    Args:
        segments: Every value is between 0 and ``top``.
        top: The value at the top edge; the bottom edge is 0.
        width: Cells per row.
        height: Rows.
    """
    cells = [[0] * width for _ in range(height)]
    highest = DOTS_DOWN * height - 1
    for positions, values in segments:
        heights = [floor(round(0.5 + highest * value / top, _DIGITS)) for value in values]
        for across, up in _line_dots(list(zip(positions, heights, strict=True))):
            cells[-1 - up // DOTS_DOWN][across // DOTS_ACROSS] |= _BITS[up % DOTS_DOWN][across % DOTS_ACROSS]
    return tuple("".join(chr(BLANK + cell) if cell else " " for cell in row) for row in cells)


def _line_dots(points: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The points and, between two adjacent ones, one dot per column or per row, whichever are more."""
    yield points[0]
    for (left, low), (right, high) in pairwise(points):
        steps = max(abs(right - left), abs(high - low))
        if steps:
            across, up = (right - left) / steps, (high - low) / steps
            yield from ((int(left + step * across), int(low + step * up)) for step in range(1, steps + 1))


def _segments(columns: Columns, top: float) -> Iterator[Segment]:
    """Positions and values of each run of columns without a gap; a column's values use the first dots of its cell."""
    positions: list[int] = []
    values: list[float] = []
    for column, summary in enumerate(columns):
        if summary is None:
            if positions:
                yield positions, values
                positions, values = [], []
            continue
        low, mean, high = (max(0.0, min(value, top)) for value in summary)
        path = (mean,) if low == high else (mean, low, high, mean)
        positions += [DOTS_ACROSS * column] * len(path)
        values += path
    if positions:
        yield positions, values
