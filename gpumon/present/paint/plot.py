"""Complete plots of results, drawn by plotext. The only module that uses it; it is imported when a plot is drawn.

plotext keeps its state per process, so everything is set again for each plot. It draws into plain text with codes for
colors, which become roles here, so that no escape sequence of plotext reaches the terminal.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.present.paint.line import SERIES_ROLES, Line, Role, Span, merged

POINTS: Final = "●○◆◇■□▲△"
"""Glyphs of the points of each curve."""
MAX_CURVES: Final = len(POINTS)
_COLORED: Final = re.compile(r"\x1b\[38;5;(\d+)m([^\x1b]*)|\x1b\[[\d;]*m|([^\x1b]+)")


class Curve(NamedTuple):
    """A curve of a plot.

    Attributes:
        name: Its name in the legend.
        x: Horizontal positions, rising.
        y: The value at each position.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]


class AxisTick(NamedTuple):
    """A label on an axis."""

    at: float
    text: str


def plot(
    curves: Sequence[Curve],
    width: int,
    height: int,
    x_ticks: Sequence[AxisTick],
    y_ticks: Sequence[AxisTick],
    *,
    has_points: bool = True,
) -> list[Line]:
    """Returns the plot with its axes; the vertical axis ends at the first and the last of its labels.

    Args:
        curves: At most `MAX_CURVES` curves.
        width: Cells of a row.
        height: Rows, including the axes.
        x_ticks: Labels of the horizontal axis.
        y_ticks: Labels of the vertical axis, from the lowest to the highest.
        has_points: Whether each value is marked with a point.
    """
    import plotext  # late: the import takes 30 ms, which only a result with a plot pays

    plotext.clear_figure()
    plotext.limit_size(False, False)
    plotext.plotsize(width, height)
    plotext.theme("clear")
    plotext.xaxes(True, False)
    plotext.yaxes(True, False)
    for index, curve in enumerate(curves):
        plotext.plot(list(curve.x), list(curve.y), marker="braille", color=index)
    for index, curve in enumerate(curves if has_points else ()):
        plotext.scatter(list(curve.x), list(curve.y), marker=POINTS[index], color=index)
    plotext.xticks([tick.at for tick in x_ticks], [tick.text for tick in x_ticks])
    plotext.yticks([tick.at for tick in y_ticks], [tick.text for tick in y_ticks])
    plotext.ylim(y_ticks[0].at, y_ticks[-1].at)
    return [merged(_spans(row)) for row in plotext.build().splitlines()[:height]]


def legend(curves: Sequence[Curve]) -> list[Span]:
    """The names of the curves, each after its point."""
    return [
        Span(f"{point} {curve.name}  ", role) for point, role, curve in zip(POINTS, SERIES_ROLES, curves, strict=False)
    ]


def _spans(row: str) -> Iterator[Span]:
    """A row of plotext with roles in place of codes for colors; axes and labels are dim."""
    for match in _COLORED.finditer(row):
        color, colored, text = match.groups()
        if color is not None:
            yield Span(colored, SERIES_ROLES[int(color)])
        elif text:
            yield Span(text, Role.DIM)
