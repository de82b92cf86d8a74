"""Charts of a report as inline SVG: no script, and the colors are those of the page."""

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

_WIDTH: Final = 1000
_LEFT: Final = 84
_RIGHT: Final = 12
_PLOT: Final = _WIDTH - _LEFT - _RIGHT
_CLASSES: Final = "abcdef"
_HEIGHT: Final = 160
_ROW: Final = 22
_AXIS: Final = 20
_MAX_CELLS: Final = 4000
"""A cell takes 90 bytes of the page."""


class ChartLine(NamedTuple):
    """A line of a chart: one value for each column, None for a gap, and the width of a column in seconds."""

    label: str
    values: Sequence[float | None]
    width_seconds: float


def color_of(number: int) -> str:
    """The class of the color of a line."""
    return _CLASSES[number % len(_CLASSES)]


def line_chart(lines: Sequence[ChartLine], width: float, text: str, maximum: float, ends: tuple[str, str]) -> str:
    """Lines from zero to a maximum.

    Args:
        lines: The lines.
        width: What the right edge is, in seconds.
        text: The maximum as text.
        maximum: The highest value of the axis.
        ends: The left and the right edge as text.
    """
    grid = "".join(f'<path class="grid" d="M{_LEFT} {y}h{_PLOT}"/>' for y in (10, (_HEIGHT + 10) // 2, _HEIGHT))
    parts = [grid, _text(0, 15, text), _text(0, _HEIGHT, "0"), *_edges(_HEIGHT, ends)]
    for number, line in enumerate(lines):
        path, is_drawn = "", False
        for column, value in enumerate(line.values):
            if value is not None:
                x = _LEFT + _PLOT * min(1.0, (column + 0.5) * line.width_seconds / max(width, 1e-9))
                y = _HEIGHT - (_HEIGHT - 10) * min(1.0, max(0.0, value / maximum))
                path += f"{'L' if is_drawn else 'M'}{x:.1f} {y:.1f}{'' if is_drawn else 'h.1'}"
            is_drawn = value is not None
        parts.append(f'<path class="stroke {color_of(number)}" d="{path}"/>')
    return _svg(_HEIGHT + _AXIS, parts)


def heat_map(rows: Sequence[ChartLine], events: Sequence[tuple[int | None, float, str]], width: float, end: str) -> str:
    """A row of cells for each GPU, darker with the value, from 0 to 100; events are marks.

    Args:
        rows: The GPUs.
        events: The row (None for all), the time and the text of each event.
        width: The time of the right edge, in seconds.
        end: The same as text.
    """
    height, scale = _ROW * len(rows), _PLOT / max(width, 1e-9)
    count = max(1, -(-sum(len(row.values) for row in rows) // _MAX_CELLS))
    parts = _edges(height, ("0", end))
    for number, row in enumerate(rows):
        top = number * _ROW
        parts.append(_text(0, top + 15, row.label))
        for first in range(0, len(row.values), count):
            known = [value for value in row.values[first : first + count] if value is not None]
            x = _LEFT + scale * first * row.width_seconds
            wide = min(scale * count * row.width_seconds, _LEFT + _PLOT - x)
            if known and wide > 0:
                value = sum(known) / len(known)
                place = f'x="{x:.1f}" y="{top + 2}" width="{wide:.2f}" height="18"'
                parts.append(f'<rect class="fill a" opacity="{0.06 + 0.94 * min(1.0, value / 100):.2f}" {place}/>')
    for place_of_row, at, text in events:
        top, tall = (0, height) if place_of_row is None else (place_of_row * _ROW, _ROW)
        place = f'x="{_LEFT + min(_PLOT, scale * at):.1f}" y="{top}" width="2" height="{tall}"'
        parts.append(f'<rect class="fill bad" {place}><title>{escape(text)}</title></rect>')
    return _svg(height + _AXIS, parts)


def _text(x: int, y: int, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _edges(height: int, ends: tuple[str, str]) -> list[str]:
    return [_text(_LEFT, height + 15, ends[0]), _text(_WIDTH - _RIGHT, height + 15, ends[1], "end")]


def _svg(height: int, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">{"".join(parts)}</svg>'
