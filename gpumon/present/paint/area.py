"""Charts over time on one value axis, in braille dots: areas filled to the axis, lines, a grid and a cursor.

One column of cells is one column of time. A gap is empty at any width; a measured zero is a dot on the axis, so that
the two differ. The form and a label distinguish the series, never the color alone.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.core.timeline import Summary
from gpumon.present.paint.line import Line, Role, Span, clipped, plain, width_of

GUTTER: Final = 13
"""Cells at the left of a chart for the labels of the value axis."""
_DOTS_DOWN: Final = 4
"""Dots per cell, vertically; there are two horizontally."""
_BLANK: Final = 0x2800
"""Code point of the braille cell without dots."""
_FULL: Final = 0xFF
_GRID: Final = "┈"
_CURSOR: Final = "│"
_ARROW: Final = "▲"
_GRID_OR_DOTS: Final = re.compile(f"{_GRID}+|[^{_GRID}]+")
_MIN_GRID_HEIGHT: Final = 3
_MIN_MIDDLE_HEIGHT: Final = 4
_MAX_CACHED_LABELS: Final = 256
_DENSITIES: Final = (0x82, 0x95, 0xFF)
"""The dots of a filled cell at the bottom, in the middle and at the top of an area with steps."""
_EVERY_OTHER_DOT: Final = int("01" * 512, 2)


def _bits(dots: int, bits: Sequence[int]) -> int:
    return sum(bit for position, bit in enumerate(bits) if dots >> position & 1)


_LEFT: Final = tuple(_bits(dots, (0x40, 0x04, 0x02, 0x01)) for dots in range(16))
"""Bits of the left half of a cell, by its four dots as a number whose lowest bit is the bottom dot."""
_RIGHT: Final = tuple(_bits(dots, (0x80, 0x20, 0x10, 0x08)) for dots in range(16))
_DOTS: Final = tuple(chr(_BLANK + cell) for cell in range(1, 256))
_CHARACTERS: Final = (" ", *_DOTS)
_GRID_CHARACTERS: Final = (_GRID, *_DOTS)


class Form(Enum):
    """How a series is drawn."""

    AREA = "area"
    """Filled from the axis to the mean; a thin line continues to the highest value of the column."""
    LINE = "line"
    """A line through the means, and a vertical line from the lowest to the highest value of the column."""
    DOTTED = "dotted"
    """A line of every other dot."""


Values = Sequence[Summary | float | None]


class PlotSeries(NamedTuple):
    """A series of a chart.

    Attributes:
        values: One value per column, oldest first, the newest at the right edge; None is a gap.
        role: Its color.
        form: How it is drawn.
        steps: The colors of an area by height, from the bottom to the top, in place of one color. The area becomes
            denser with each step too, so that the height shows without colors and a high level is no solid block.
    """

    values: Values
    role: Role
    form: Form = Form.AREA
    steps: tuple[Role, ...] = ()


def area_chart(
    series: Sequence[PlotSeries], top: float, width: int, height: int, *, grid: bool = True, cursor: int | None = None
) -> list[Line]:
    """Returns the rows of a chart, the top row first, each exactly ``width`` cells wide.

    Args:
        series: What to draw, from the back to the front. An area hides what is behind it; a line is drawn through it.
        top: The value at the top edge; the bottom edge is 0. Higher values are drawn at the top edge.
        width: Columns.
        height: Rows.
        grid: Whether lines at 0, 50 and 100 % of the axis are visible through empty cells.
        cursor: Index of a column to mark, or None.
    """
    if width < 1 or height < 1:
        return [()] * max(0, height)
    cells = [[0] * width for _ in range(height)]
    roles: list[list[Role | None]] = [[None] * width for _ in range(height)]
    if top > 0:
        for one in series:
            _draw(one, top, cells, roles)
    grid_rows = _grid_rows(height) if grid else ()
    return [
        _row_line(row, row_roles, cursor, has_grid=number in grid_rows)
        for number, (row, row_roles) in enumerate(zip(cells, roles, strict=True))
    ]


def scrolled_chart(
    before: Sequence[Line], series: PlotSeries, top: float, new: int, unsettled: int, *, grid: bool = True
) -> list[Line]:
    """Returns the chart of one series without a cursor, reusing what was drawn of it ``new`` columns earlier.

    Args:
        before: The chart as drawn before, of the same size and with the same top.
        series: The series now.
        top: The value at the top edge.
        new: Number of new columns.
        unsettled: Number of columns before the new ones whose values may have changed since they were drawn.
        grid: Whether the chart has a grid.
    """
    width, redrawn = len(series.values), new + unsettled
    if redrawn + 1 >= width:
        return area_chart([series], top, width, len(before), grid=grid)
    tail = series._replace(values=series.values[-redrawn - 1 :])  # a column is connected with the one before it
    ends = area_chart([tail], top, redrawn + 1, len(before), grid=grid)
    rows = []
    for old, end in zip(before, ends, strict=True):
        text = plain(old)[new : new + width - redrawn] + plain(end)[1:]
        spans = (Span(part, Role.GRID if part[0] == _GRID else series.role) for part in _GRID_OR_DOTS.findall(text))
        rows.append(tuple(spans))
    return rows


def with_scale(rows: Sequence[Line], top: str, middle: str = "", width: int = GUTTER) -> list[Line]:
    """The rows of a chart with the labels of the value axis at their left.

    Args:
        rows: The chart.
        top: Label of the top edge.
        middle: Label of half of the axis.
        width: Cells of the labels, including the edge of the chart.
    """
    labels = [""] * len(rows)
    if len(rows) >= _MIN_MIDDLE_HEIGHT:
        labels[len(rows) // 2] = middle
    if len(rows) > 1:
        labels[-1] = "0"
    labels[:1] = [top][: len(rows)]
    return [(gutter(label, "┤" if label else "│", width), *row) for label, row in zip(labels, rows, strict=True)]


def cursor_label(cursor: int, text: str, width: int) -> tuple[int, str]:
    """A text below the cursor, with an arrow to it, and the column at which the text begins.

    Args:
        cursor: Column of the cursor.
        text: The text; it is at the right of the arrow, or else at the left, and cut if neither has room for it.
        width: Columns of the chart.
    """
    right, left = f"{_ARROW} {text}", f"{text} {_ARROW}"
    if cursor + width_of(right) > width and width_of(left) <= cursor + 1:
        return cursor + 1 - width_of(left), left
    if cursor + width_of(right) <= width or width - cursor > cursor:
        return cursor, clipped(right, width - cursor)
    return 0, f"{clipped(text, cursor - 1):<{cursor - 1}} {_ARROW}"


@lru_cache(maxsize=_MAX_CACHED_LABELS)
def gutter(label: str, border: str, width: int = GUTTER) -> Span:
    """The cells left of a chart row: its label and the edge of the chart."""
    return Span(f"{clipped(label, width - 2):>{width - 2}} {border}", Role.DIM)


def _grid_rows(height: int) -> tuple[int, ...]:
    if height < _MIN_GRID_HEIGHT:
        return ()
    return (0, height - 1) if height < _MIN_MIDDLE_HEIGHT else (0, height // 2, height - 1)


def _draw(series: PlotSeries, top: float, cells: list[list[int]], roles: list[list[Role | None]]) -> None:
    """Draws a series over what has been drawn."""
    height, width = len(cells), len(cells[0])
    is_area, role = series.form is Form.AREA, series.role
    halves, mean = _HALVES[series.form], None
    values = series.values[-width:]
    levels = _levels(values, top, _DOTS_DOWN * height)
    for column, level in enumerate(levels, width - len(values)):
        left, right = (0, 0) if level is None else halves(mean, level)
        mean = None if level is None else level[1]
        for shift in range(0, (left | right).bit_length(), _DOTS_DOWN):
            row = -1 - shift // _DOTS_DOWN
            dots = _LEFT[left >> shift & 15] | _RIGHT[right >> shift & 15]
            if dots:
                before = cells[row][column]
                if series.steps:
                    step = len(series.steps) * (-1 - row) // height
                    role = series.steps[step]
                    is_inside = dots == _FULL and (left | right) >> shift + _DOTS_DOWN
                    dots = _DENSITIES[step * len(_DENSITIES) // len(series.steps)] if is_inside else dots
                # A line through a filled cell replaces its dots, or else it could not be seen.
                cells[row][column] = dots if is_area or before == _FULL else before | dots
                roles[row][column] = role


Levels = tuple[int, int, int]
"""Heights of the lowest value, the mean and the highest one, in dots from 1."""


def _levels(values: Values, top: float, dots: int) -> Iterator[Levels | None]:
    factor = dots / top
    for value in values:
        if value is None:
            yield None
        elif isinstance(value, tuple):
            low, mean, high = value
            level = _level(mean, factor, dots)
            ends = (level, level) if low == high else (_level(low, factor, dots), _level(high, factor, dots))
            yield ends[0], level, ends[1]
        else:
            level = _level(value, factor, dots)
            yield level, level, level


def _level(value: float, factor: float, dots: int) -> int:
    return max(1, min(dots, round(value * factor)))


Halves = Callable[[int | None, Levels], tuple[int, int]]
"""The dots of the left and the right half of a column, as numbers whose lowest bit is the bottom dot.

The arguments are the mean of the column before, None after a gap, and the column.
"""


def _area_halves(before: int | None, column: Levels) -> tuple[int, int]:
    """A filled column."""
    _, mean, high = column
    between = mean if before is None else (before + mean) // 2
    return (1 << max(between, high if high > mean else 0)) - 1, (1 << mean) - 1


def _line_halves(before: int | None, column: Levels) -> tuple[int, int]:
    """A line: the left half goes half the way from the column before, the right half the other half."""
    low, mean, high = column
    start = mean if before is None else before
    between = (start + mean) // 2
    left, right = _range_dots(start, between), _range_dots(between, mean)
    return left | _range_dots(low, high) if low != high else left, right


def _dotted_halves(before: int | None, column: Levels) -> tuple[int, int]:
    """Every other dot of a line, in the left half."""
    left, right = _line_halves(before, column)
    return (left | right) & _EVERY_OTHER_DOT or left, 0


_HALVES: Final[dict[Form, Halves]] = {Form.AREA: _area_halves, Form.LINE: _line_halves, Form.DOTTED: _dotted_halves}


def _range_dots(one: int, other: int) -> int:
    """The dots from one height to another, both included."""
    low, high = (one, other) if one < other else (other, one)
    return (1 << high) - (1 << low - 1)


def _row_line(row: Sequence[int], roles: Sequence[Role | None], cursor: int | None, *, has_grid: bool) -> Line:
    """One row as spans. An empty cell takes the role of the cell before it, since each change of style costs bytes."""
    text = "".join(map((_GRID_CHARACTERS if has_grid else _CHARACTERS).__getitem__, row))
    drawn = set(roles)
    if cursor is None and not has_grid and len(drawn - {None}) <= 1:  # most rows
        return (Span(text, max(drawn, key=bool) or Role.PLAIN),)
    shown: list[Role] = []
    role = Role.PLAIN
    for cell_role in roles:
        role = cell_role or (Role.GRID if has_grid else role)
        shown.append(role)
    if cursor is not None and 0 <= cursor < len(row):
        shown[cursor] = Role.CURSOR
        text = text if row[cursor] else f"{text[:cursor]}{_CURSOR}{text[cursor + 1 :]}"
    spans: list[Span] = []
    begin = 0
    for index, role in enumerate(shown):
        if role is not shown[begin]:
            spans.append(Span(text[begin:index], shown[begin]))
            begin = index
    spans.append(Span(text[begin:], shown[begin]))
    return tuple(spans)
