"""Charts over time on one value axis, in braille dots: areas filled to the axis, lines, a grid and a cursor.

One column of cells is one column of time. A gap is empty at any width; a measured zero is a dot on the axis, so that
the two differ. The form and a label distinguish the series, never the color alone.
"""

import re
from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Final, NamedTuple

from gpumon.core.timeline import Summary
from gpumon.present.paint.line import Line, Role, Span, clipped, width_of

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
_MAX_CACHED_COLUMNS: Final = 256
_DENSITIES: Final = (0x82, 0x95, 0xFF)
"""The dots of a filled cell at the bottom, in the middle and at the top of an area with steps."""
_EVERY_OTHER_DOT: Final = int("01" * 512, 2)


def _bits(dots: int, bits: Sequence[int]) -> int:
    return sum(bit for position, bit in enumerate(bits) if dots >> position & 1)


_LEFT: Final = tuple(_bits(dots, (0x40, 0x04, 0x02, 0x01)) for dots in range(16))
"""Bits of the left half of a cell, by its four dots as a number whose lowest bit is the bottom dot."""
_RIGHT: Final = tuple(_bits(dots, (0x80, 0x20, 0x10, 0x08)) for dots in range(16))
_CHARACTERS: Final = (" ", *(chr(_BLANK + dots) for dots in range(1, 256)))


class Form(Enum):
    """How a series is drawn."""

    __hash__ = object.__hash__  # as that of `Role`: it is part of the key of every column
    AREA = "area"
    """Filled from the axis to the mean; a thin line continues to the highest value of the column."""
    LINE = "line"
    """A line through the means, and a vertical line from the lowest to the highest value of the column."""
    DOTTED = "dotted"
    """A line of every other dot."""


Value = Summary | float | None


class PlotSeries(NamedTuple):
    """A series of a chart.

    Attributes:
        values: One value per column, oldest first, the newest at the right edge; None is a gap.
        role: Its color.
        form: How it is drawn.
        steps: The colors of an area by height, from the bottom to the top, in place of one color. The area becomes
            denser with each step too, so that the height shows without colors and a high level is no solid block.
    """

    values: Sequence[Value]
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
    drawn = [(one, _rows(one, top, width, height)) for one in series if top > 0]
    grid_rows = _grid_rows(height) if grid else ()
    return [
        _row_line(
            [_Layer(rows[row], _role_of(one, row, height), one.form) for one, rows in drawn if not rows[row].isspace()],
            width,
            cursor,
            has_grid=row in grid_rows,
        )
        for row in range(height)
    ]


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


class _Layer(NamedTuple):
    """One row of a series with its color and form."""

    cells: str
    role: Role
    form: Form


def _rows(series: PlotSeries, top: float, width: int, height: int) -> list[str]:
    """The rows of a series, the top row first."""
    values = series.values[-width:]
    columns = [" " * height] * (width - len(values))
    before, scale = None, (top, height, len(series.steps))
    for value in values:
        columns.append(_column(series.form, before, value, scale))
        before = value
    return list(map("".join, zip(*columns, strict=True)))


def _role_of(series: PlotSeries, row: int, height: int) -> Role:
    steps = series.steps
    return steps[len(steps) * (height - 1 - row) // height] if steps else series.role


Levels = tuple[int, int, int]
"""Heights of the lowest value, the mean and the highest one, in dots from 1."""


def _levels(value: Value, top: float, dots: int) -> Levels | None:
    if value is None:
        return None
    low, mean, high = value if isinstance(value, tuple) else (value, value, value)
    return _level(low, top, dots), _level(mean, top, dots), _level(high, top, dots)


def _level(value: float, top: float, dots: int) -> int:
    return max(1, min(dots, round(value * (dots / top))))


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


@lru_cache(maxsize=_MAX_CACHED_COLUMNS)
def _column(form: Form, before: Value, value: Value, scale: tuple[float, int, int]) -> str:
    """A column from the top, at a scale of top, height and steps; a chart that moves has most of its columns again."""
    top, height, steps = scale
    last, levels = (_levels(one, top, _DOTS_DOWN * height) for one in (before, value))
    if levels is None:
        return " " * height
    left, right = _HALVES[form](None if last is None else last[1], levels)
    cells = ""
    for row in range(height):
        shift = row * _DOTS_DOWN
        dots = _LEFT[left >> shift & 15] | _RIGHT[right >> shift & 15]
        is_inside = dots == _FULL and (left | right) >> shift + _DOTS_DOWN
        dots = _DENSITIES[steps * row // height * len(_DENSITIES) // steps] if steps and is_inside else dots
        cells = _CHARACTERS[dots] + cells
    return cells


def _row_line(layers: Sequence[_Layer], width: int, cursor: int | None, *, has_grid: bool) -> Line:
    """One row as spans. An empty cell takes the role of the cell before it, since each change of style costs bytes."""
    if cursor is None and len(layers) <= 1:  # most rows
        cells, role, _ = layers[0] if layers else (" " * width, Role.PLAIN, None)
        parts = _GRID_OR_DOTS.findall(cells.replace(" ", _GRID)) if has_grid else [cells]
        return tuple(Span(part, Role.GRID if part[0] == _GRID else role) for part in parts)
    dots, roles = [0] * width, [Role.GRID if has_grid else None] * width
    for layer in layers:
        for column, cell in enumerate(layer.cells):
            if cell != " ":
                # A line through a filled cell replaces its dots, or else it could not be seen.
                before = 0 if layer.form is Form.AREA or dots[column] == _FULL else dots[column]
                dots[column], roles[column] = before | ord(cell) - _BLANK, layer.role
    text = [_CHARACTERS[cell] if cell or not has_grid else _GRID for cell in dots]
    _, *shown = accumulate(roles, lambda before, role: role or before, initial=Role.PLAIN)
    if cursor is not None and 0 <= cursor < width:
        shown[cursor] = Role.CURSOR
        text[cursor] = text[cursor] if dots[cursor] else _CURSOR
    runs = groupby(zip(text, shown, strict=True), itemgetter(1))
    return tuple(Span("".join(character for character, _ in run), role) for role, run in runs)
