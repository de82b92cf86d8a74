"""What is rendered and sent to the terminal when a part of the screen has changed: the changed cells, no style twice.

Textual renders every widget between the first and the last change, and divides each line at the edges of all widgets.
It sends a line from the left end of its widget up to the last changed cell, and sets the complete style of every span
again. A screen full of bars has many short spans, so that most bytes would be styles.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import Compositor, CompositorUpdate
from textual.filter import ANSIToTruecolor
from textual.geometry import Region
from textual.strip import SGR_STYLES, Strip
from textual.widget import Widget

from gpumon.present.paint.line import width_of
from gpumon.ui.widgets.text_lines import LineWidget

_RESET: Final = "\x1b[0m"
_MAX_STYLES: Final = 256


class Piece(NamedTuple):
    """Changed cells of one line: their place on the screen, and what is there now."""

    x: int
    y: int
    segments: Sequence[Segment]


class _Placed(NamedTuple):
    """A widget, its region, and the part of the region that is on the screen."""

    widget: Widget
    region: Region
    shown: Region


class _Cells(NamedTuple):
    """Changed cells of one line, the end excluded, and the widget in front there."""

    y: int
    begin: int
    end: int
    front: _Placed


class _Codes(NamedTuple):
    """The codes of a style: attributes such as bold, the color of the text, and that of the background."""

    attributes: str = ""
    color: str = ""
    background: str = ""


_PLAIN: Final = _Codes()


def render_partial_update(compositor: Compositor) -> "PartialUpdate | None":
    """Render the changed cells of a screen, each by the widget in front; None if no cell has changed."""
    regions = [region.intersection(compositor.size.region) for region in compositor._dirty_regions]  # noqa: SLF001
    compositor._dirty_regions.clear()  # noqa: SLF001 - as the method that this replaces does
    spans = [*compositor._regions_to_spans(regions)]  # noqa: SLF001
    top, bottom = (min(spans)[0], max(spans)[0]) if spans else (0, 0)
    placed = [
        _Placed(widget, region, region.intersection(clip))
        for widget, (region, clip) in compositor.visible_widgets.items()
        if region.y <= bottom and region.bottom > top
    ]
    changed = [cells for y, begin, end in spans for cells in _split(y, begin, end, placed)]
    return PartialUpdate(_rendered(changed)) if changed else None


def _split(y: int, begin: int, end: int, placed: Iterable[_Placed]) -> Iterator[_Cells]:
    """The cells of one line by the widget in front.

    Args:
        y: The line.
        begin: The first cell.
        end: The cell after the last one.
        placed: The widgets, those in front first.
    """
    uncovered = [(begin, end)]
    for item in placed:
        x, top, width, height = item.shown
        if not top <= y < top + height:
            continue
        behind = []
        for first, last in uncovered:
            left, right = max(first, x), min(last, x + width)
            if left >= right:
                behind.append((first, last))
                continue
            yield _Cells(y, left, right, item)
            behind += [part for part in ((first, left), (right, last)) if part[0] < part[1]]
        if not behind:
            return
        uncovered = behind


def _rendered(changed: Sequence[_Cells]) -> list[Piece]:
    """The cells as segments.

    A widget of lines makes only those that have changed; another one is rendered once, from its first changed line to
    its last one.
    """
    lines: dict[Widget, tuple[int, list[Strip]]] = {}
    segments: dict[tuple[Widget, int], list[Segment]] = {}
    pieces = []
    # The colors of roles are none that Textual must replace.
    filters = [item for item in changed[0].front.widget.app.get_line_filters() if not isinstance(item, ANSIToTruecolor)]
    for y, begin, end, (widget, region, shown) in changed:
        if isinstance(widget, LineWidget):
            if (widget, y) not in segments:
                line = widget.line_segments(y - region.y)
                for item in filters:
                    line = item.apply(line, widget.background_colors[1])
                segments[widget, y] = line
            pieces.append(Piece(begin, y, cropped(segments[widget, y], begin - region.x, end - region.x)))
            continue
        if widget not in lines:
            last = max(cells.y for cells in changed if cells.front.widget is widget)
            crop = Region(shown.x - region.x, y - region.y, shown.width, last + 1 - y)
            lines[widget] = y, widget.render_lines(crop)
        first, strips = lines[widget]
        pieces.append(Piece(begin, y, cropped(strips[y - first], begin - shown.x, end - shown.x)))
    return pieces


def cropped(strip: Iterable[Segment], begin: int, end: int) -> list[Segment]:
    """The cells of a line from one up to another; its own method would cost more than the rest."""
    result: list[Segment] = []
    position = 0
    for segment in strip:
        if position >= end:
            break
        text, style, _ = segment
        width = width_of(text)
        first, last = max(0, begin - position), min(width, end - position)
        if first < last:
            is_simple = len(text) == width
            part = Segment(text[first:last], style) if is_simple else segment.split_cells(last)[0].split_cells(first)[1]
            result.append(part if last - first < width else segment)
        position += width
    return result


class PartialUpdate(CompositorUpdate):
    """The changed cells of a screen as escape sequences.

    Args:
        pieces: The cells, from top to bottom.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces

    def render_segments(self, console: Console) -> str:
        system = console._color_system or ColorSystem.TRUECOLOR  # noqa: SLF001 - as Textual's updates do
        output: list[str] = []
        current = _PLAIN
        for x, y, segments in self.pieces:
            output.append(f"\x1b[{y + 1};{x + 1}H")
            for text, style, _ in segments:
                codes = _PLAIN if style is None else _codes(style, system)
                if style is not None and style.link is not None:
                    output += [_RESET, Strip.render_style(style, text, system)]
                    current = _PLAIN
                    continue
                if text.isspace() and not codes.attributes and not current.attributes:
                    codes = codes._replace(color=current.color)  # it cannot be seen
                output += [_transition(current, codes), text]
                current = codes
        return "".join([*output, _RESET])


@lru_cache(maxsize=_MAX_STYLES)
def _codes(style: Style, system: ColorSystem) -> _Codes:
    bits = style._attributes & style._set_attributes  # noqa: SLF001 - as `Strip.render_ansi` does
    attributes = ";".join(SGR_STYLES[bit] for bit in range(bits.bit_length()) if bits & 1 << bit)
    color, background = style.color, style.bgcolor
    return _Codes(
        attributes,
        "" if color is None else ";".join(color.downgrade(system).get_ansi_codes()),
        "" if background is None else ";".join(background.downgrade(system).get_ansi_codes(foreground=False)),
    )


@lru_cache(maxsize=_MAX_STYLES)
def _transition(before: _Codes, after: _Codes) -> str:
    """The sequence that leads from one style to another; empty if they are equal."""
    if before == after:
        return ""
    can_keep = before.attributes == after.attributes and (
        (bool(after.color) or not before.color) and (bool(after.background) or not before.background)
    )
    if can_keep:
        changed = [new for old, new in zip(before, after, strict=True) if new != old]
        return f"\x1b[{';'.join(changed)}m"
    return f"\x1b[{';'.join(filter(None, ('0', *after)))}m"
