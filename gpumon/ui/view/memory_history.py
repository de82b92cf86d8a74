"""A process's memory over time: allocated within reserved within all that it holds, with its peak and its troubles."""

from typing import Final, NamedTuple

from gpumon.core.units import bytes_text
from gpumon.operations.probed import Owner
from gpumon.ui.memory_course import MarkKind, MemoryCourse, Series
from gpumon.ui.paint.layers import layers
from gpumon.ui.paint.line import Line, Role, Span, clipped, line
from gpumon.ui.view.device import axis_line, gutter
from gpumon.ui.view.memory_words import who_text
from gpumon.ui.view.window import Window

LINES_AROUND: Final = 3
"""Heading, axis and marks."""
_FINEST: Final = 1 << 20
_STEPS: Final = (1.0, 1.25, 1.5, 1.75)
_HEADROOM: Final = 1.02
_GLYPHS: Final = {MarkKind.RETRY: "R", MarkKind.OOM: "X"}
_PEAK: Final = "▲"
_ORDER: Final = (_GLYPHS[MarkKind.OOM], _PEAK, _GLYPHS[MarkKind.RETRY])
"""What is told in words first, since there may not be room for all."""
_WORDS: Final = {
    MarkKind.RETRY: "retried with an empty cache",
    MarkKind.OOM: "out of memory",
}


class _Shape(NamedTuple):
    """What a chart was drawn for; with another one it is drawn anew."""

    window: Window
    height: int
    held_seconds: float


class MemoryChart:
    """The chart of one process, which is drawn anew only when a column has passed."""

    def __init__(self) -> None:
        self.rows: list[Line] = []
        self.marks = ""
        self.top = 0.0
        self._shape: _Shape | None = None
        self._course: MemoryCourse | None = None

    def draw(self, course: MemoryCourse, window: Window, height: int, held_seconds: float) -> None:
        """Brings it up to date.

        Args:
            course: What it shows.
            window: What part of it.
            height: Rows.
            held_seconds: A value holds until the next one, at most so long.
        """
        shape = _Shape(window, height, held_seconds)
        if shape == self._shape and course is self._course:
            return
        self._shape, self._course = shape, course
        allocated, reserved, held = (
            course.columns(series, window.first, window.width, window.column_seconds, held_seconds)
            for series in (Series.ALLOCATED, Series.RESERVED, Series.HELD)
        )
        self.top = round_above(_HEADROOM * max(value or 0.0 for value in (*allocated, *reserved, *held)))
        self.rows = layers(allocated, reserved, held, self.top, height)
        self.marks = marks_text(course, window)


def round_above(value: float) -> float:
    """A number above the value that has a short name and stays the same while the value moves little."""
    power = float(_FINEST)
    while power * 2 <= value:
        power *= 2
    return next((step * power for step in _STEPS if step * power >= value), 2 * power)


def history_heading(owner: Owner, width: int) -> Line:
    """Whose course it is, what the chart's parts are, and their values now."""
    told = owner.statistics
    allocated = bytes_text(None if told is None else told.allocated_bytes)
    reserved = bytes_text(None if told is None else told.reserved_bytes)
    held = bytes_text(owner.memory_bytes)
    words = f" {who_text(owner)}  ⣿ allocated {allocated}  ⠒ reserved {reserved}  ⠐ NVML {held}"
    return line(Span(clipped(words, width).ljust(width), Role.HEADING))


def history_lines(chart: MemoryChart, window: Window, now_seconds: float) -> list[Line]:
    """The chart with its scale at the left, its time axis, and its marks."""
    lines = []
    last = len(chart.rows) - 1
    for row, drawn in enumerate(chart.rows):
        label = bytes_text(chart.top) if row == 0 else "0" if row == last else ""
        lines.append((gutter(label, "┤" if label else "│"), *drawn))
    return [*lines, axis_line(window, now_seconds), line(gutter("", " "), Span(chart.marks, Role.WARNING))]


def marks_text(course: MemoryCourse, window: Window) -> str:
    """Where memory was short or at its peak, and each kind of that once in words, where these have room."""
    marked = [(mark.seconds, _GLYPHS[mark.kind], _WORDS[mark.kind]) for mark in course.marks]
    if course.peak is not None:
        marked.append((course.peak.seconds, _PEAK, f"peak {bytes_text(course.peak.bytes)}"))
    places = {window.place(seconds): (glyph, words) for seconds, glyph, words in marked}
    cells = [" "] * window.width
    told: dict[str, tuple[int, str]] = {}
    for place, (glyph, words) in sorted(places.items()):
        if 0 <= place < window.width:
            cells[place] = glyph
            told[glyph] = (place, words)
    for glyph in _ORDER:
        if glyph in told:
            _write(cells, *told[glyph])
    return "".join(cells)


def _write(cells: list[str], place: int, words: str) -> None:
    """Writes words beside their mark, right of it or else left, where nothing stands in their way."""
    for begin, shown in ((place + 1, f" {words} "), (place - len(words) - 1, f"{words} ")):
        end = begin + len(shown)
        if begin >= 0 and end <= len(cells) and not "".join(cells[begin:end]).strip():
            cells[begin:end] = shown
            return
