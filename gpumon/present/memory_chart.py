"""A process's memory over time: allocated within reserved within all that it holds, with its peak and failures."""

from typing import Final, NamedTuple

from gpumon.core.units import bytes_text
from gpumon.operations.gpu_processes import Owner
from gpumon.present.chart_lines import AREA_GLYPH, axis_line
from gpumon.present.paint.area import Form, PlotSeries, area_chart, gutter, with_scale
from gpumon.present.paint.line import Line, Role, Span, clipped, line
from gpumon.present.probe_text import who_text
from gpumon.present.time_axis import TimeWindow
from gpumon.session.memory_history import MarkKind, MemoryHistory, Series

OTHER_LINES: Final = 3
"""Heading, axis and marks."""
_MIN_TOP_BYTES: Final = 1 << 20
_HEADROOM: Final = 1.02
_PEAK: Final = "▲"
_MARKS: Final = {MarkKind.RETRY: ("R", "retried with an empty cache"), MarkKind.OOM: ("X", "out of memory")}
_LABEL_ORDER: Final = (_MARKS[MarkKind.OOM][0], _PEAK, _MARKS[MarkKind.RETRY][0])
"""The order in which marks get a label, since there may not be room for all."""


class _MemoryChartParameters(NamedTuple):
    """What a chart was drawn for. It is redrawn when one of these changes."""

    window: TimeWindow
    height: int
    held_seconds: float
    cursor: int | None


class MemoryChart:
    """The chart of one process, cached until a column has passed.

    Attributes:
        columns: What is drawn: allocated, reserved and all memory of the process; None for a gap.
        rows: The drawn chart.
        marks: The line of marks below it.
        top: Bytes at the top edge.
    """

    def __init__(self) -> None:
        self.columns: tuple[list[float | None], ...] = ()
        self.rows: list[Line] = []
        self.marks = ""
        self.top = 0.0
        self._drawn_for: _MemoryChartParameters | None = None
        self._history: MemoryHistory | None = None

    def draw(
        self, history: MemoryHistory, window: TimeWindow, height: int, held_seconds: float, cursor: int | None = None
    ) -> None:
        """Brings the chart up to date.

        Args:
            history: The process's memory over time.
            window: The part of it to show.
            height: Rows.
            held_seconds: A value holds until the next one, for at most this long.
            cursor: Index of the column to mark, or None.
        """
        parameters = _MemoryChartParameters(window, height, held_seconds, cursor)
        if parameters == self._drawn_for and history is self._history:
            return
        self._drawn_for, self._history = parameters, history
        self.columns = tuple(
            history.columns(series, window.first, window.width, window.column_seconds, held_seconds)
            for series in (Series.ALLOCATED, Series.RESERVED, Series.HELD)
        )
        allocated, reserved, held = self.columns
        self.top = round_above(_HEADROOM * max(value or 0.0 for value in (*allocated, *reserved, *held)))
        plotted = (
            PlotSeries(allocated, Role.MEMORY_HISTORY),
            PlotSeries(reserved, Role.PLAIN, Form.LINE),
            PlotSeries(held, Role.PLAIN, Form.DOTTED),
        )
        self.rows = area_chart(plotted, self.top, window.width, height, cursor=cursor)
        self.marks = marks_text(history, window)


def round_above(value: float) -> float:
    """A number of bytes above the value that has a short name and stays the same while the value changes little."""
    power = float(_MIN_TOP_BYTES)
    while power * 2 <= value:
        power *= 2
    return next((step * power for step in (1.0, 1.25, 1.5, 1.75) if step * power >= value), 2 * power)


def history_heading(owner: Owner, chart: MemoryChart, width: int, cursor: int | None = None) -> Line:
    """The process, the legend of its chart, and the values now or at the cursor."""
    if cursor is None:
        statistics = owner.statistics
        values: tuple[float | None, ...] = (
            None if statistics is None else statistics.allocated_bytes,
            None if statistics is None else statistics.reserved_bytes,
            owner.memory_bytes,
        )
    else:
        values = tuple(column[cursor] for column in chart.columns)
    allocated, reserved, held = map(bytes_text, values)
    text = f" {who_text(owner)}  {AREA_GLYPH} allocated {allocated}  ⠒ reserved {reserved}  ⠐ NVML {held}"
    return line(Span(clipped(text, width).ljust(width), Role.HEADING))


def history_lines(
    chart: MemoryChart, window: TimeWindow, now_seconds: float, cursor: int | None = None, moment: str = ""
) -> list[Line]:
    """The chart with its scale at the left, its time axis and its marks.

    Args:
        chart: The chart.
        window: The time shown.
        now_seconds: Time of the latest frame.
        cursor: Index of the column under the cursor, or None.
        moment: The time at the cursor.
    """
    rows = with_scale(chart.rows, bytes_text(chart.top), bytes_text(chart.top / 2))
    marks = line(gutter("", " "), Span(chart.marks, Role.WARNING))
    return [*rows, axis_line(window, now_seconds, cursor, moment), marks]


def marks_text(history: MemoryHistory, window: TimeWindow) -> str:
    """A glyph per failure and at the peak, and the label of the newest mark of each kind where there is room."""
    marks = [(mark.seconds, *_MARKS[mark.kind]) for mark in history.marks]
    if history.peak is not None:
        marks.append((history.peak.seconds, _PEAK, f"peak {bytes_text(history.peak.bytes)}"))
    by_column = {window.index_of(seconds): (glyph, label) for seconds, glyph, label in marks}
    cells = [" "] * window.width
    newest: dict[str, tuple[int, str]] = {}
    for column, (glyph, label) in sorted(by_column.items()):
        if 0 <= column < window.width:
            cells[column] = glyph
            newest[glyph] = (column, label)
    for glyph in _LABEL_ORDER:
        if glyph in newest:
            _write_label(cells, *newest[glyph])
    return "".join(cells)


def _write_label(cells: list[str], column: int, label: str) -> None:
    """Writes a label next to its mark, at the right or else at the left, where the cells are empty."""
    for begin, text in ((column + 1, f" {label} "), (column - len(label) - 1, f"{label} ")):
        end = begin + len(text)
        if begin >= 0 and end <= len(cells) and not "".join(cells[begin:end]).strip():
            cells[begin:end] = text
            return
