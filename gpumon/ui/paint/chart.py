"""Values over time as a line of braille dots. The only place that knows plotext, which is loaded with the first chart.

plotext keeps one figure for the whole process, so everything is set anew for each drawing. It is asked for bare dots:
colours, frame and labels are gpumon's own, and nothing of a terminal's language comes in by this way. A chart that
moves on by some columns is not drawn anew: what is new is drawn by itself and put at its end, which takes a tenth of a
millisecond instead of ten.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.timeline import Summary
from gpumon.ui.paint.dots import DOTS_ACROSS, dotted

_MARKER: Final = "braille"

Columns = Sequence[Summary | None]
Drawn = tuple[str, ...]
"""Rows of text, all of the same width, the top one first."""


def chart(columns: Columns, top: float, height: int) -> Drawn:
    """A cell a column: a line through the means, and an upright one wherever there was more than the mean.

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
    import plotext  # late: it takes 30 ms, which only those pay who look at a chart

    plotext.clear_data()  # all else is set below; clear_figure() costs more than the drawing of a small chart
    plotext.limit_size(False, False)
    plotext.plotsize(width, height)
    plotext.theme("clear")
    plotext.xaxes(False, False)
    plotext.yaxes(False, False)
    plotext.xticks([])
    plotext.yticks([])
    plotext.xlim(0, DOTS_ACROSS * width - 1)
    plotext.ylim(0, top)
    for places, values in _lines(columns, top):
        plotext.plot(places, values, marker=_MARKER)
    rows = plotext.uncolorize(plotext.build()).splitlines()
    return tuple(row[:width].ljust(width) for row in (*rows, *[""] * height)[:height])


def moved_on(drawn: Drawn, columns: Columns, top: float, new: int, unsettled: int) -> Drawn:
    """What `chart` would draw of the columns, made of what it drew ``new`` columns earlier.

    Args:
        drawn: The chart before.
        columns: All columns now, as many as were drawn before.
        top: The value at the top edge, the same as before.
        new: How many columns are new.
        unsettled: How many columns before the new ones may have other values than when they were drawn.
    """
    again = new + unsettled + 1  # a line to a value that has changed also stands in the cell before it
    if top <= 0 or again + 1 >= len(columns):
        return chart(columns, top, len(drawn))
    tail = dotted(_lines(columns[-again - 1 :], top), top, again + 1, len(drawn))
    kept = len(columns) - again
    return tuple(old[new : new + kept] + end[1:] for old, end in zip(drawn, tail, strict=True))


def _lines(columns: Columns, top: float) -> Iterator[tuple[list[int], list[float]]]:
    """Places and values of each stretch without a gap; a column's values stand on the first dots of its cell."""
    places: list[int] = []
    values: list[float] = []
    for column, summary in enumerate(columns):
        if summary is None:
            if places:
                yield places, values
                places, values = [], []
            continue
        low, mean, high = (max(0.0, min(value, top)) for value in summary)
        course = (mean,) if low == high else (mean, low, high, mean)
        places += [DOTS_ACROSS * column] * len(course)
        values += course
    if places:
        yield places, values
