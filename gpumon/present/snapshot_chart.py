"""The history of a snapshot as a chart: allocated memory below a line of reserved memory, with the peak marked."""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from gpumon.core.timeline import Summary
from gpumon.core.units import bytes_text, short_time_text
from gpumon.present.paint.area import Form, PlotSeries, area_chart, cursor_label, with_scale
from gpumon.present.paint.line import Line, Role, Span, line, merged
from gpumon.snapshots.model import History, MemorySeries

_LABEL_WIDTH: Final = 10
_MIN_WIDTH: Final = 20
_PEAK: Final = "▼"
_FAILURE: Final = "✗"


class HistoryAxis(Enum):
    """The horizontal axis; the values are shown to the user."""

    EVENTS = "events"
    TIME = "time"

    def series(self, history: History) -> MemorySeries:
        """The series along the axis."""
        return history.by_event if self is HistoryAxis.EVENTS else history.by_time

    def share(self, history: History, event: int, seconds: float) -> float:
        """The position of an event on the axis, from 0 to 1."""
        if self is HistoryAxis.EVENTS:
            return event / history.events
        return seconds / history.duration_seconds if history.duration_seconds else 0.0

    def position_text(self, history: History, share: float) -> str:
        """A position on the axis: ``event 1,200``, ``after 3.20 s``."""
        if self is HistoryAxis.EVENTS:
            return f"event {int(share * history.events):,}"
        return f"after {short_time_text(share * history.duration_seconds)}"

    def end_text(self, history: History) -> str:
        """The label at the end of the axis."""
        return f"{history.events:,} events" if self is HistoryAxis.EVENTS else short_time_text(history.duration_seconds)


def chart_lines(
    history: History, axis: HistoryAxis, width: int, height: int, cursor: float | None = None
) -> list[Line]:
    """The chart, with a line of markers above it and its axis below.

    Args:
        history: The history.
        axis: The horizontal axis.
        width: Cells of a line.
        height: Rows of the chart itself.
        cursor: Position of the cursor on the axis, from 0 to 1, or None.
    """
    columns = chart_columns(width)
    if columns < _MIN_WIDTH or height < 1:
        return []
    allocated, reserved = (highest(series, columns) for series in axis.series(history))
    top = max(*allocated, *reserved, 1.0)
    marked = None if cursor is None else _column(cursor, columns)
    plotted = (PlotSeries(allocated, Role.MEMORY_HISTORY), PlotSeries(reserved, Role.PLAIN, Form.LINE))
    rows = area_chart(plotted, top, columns, height, cursor=marked)
    chart = with_scale(rows, bytes_text(top), bytes_text(top / 2), _LABEL_WIDTH)
    if cursor is None or marked is None:
        return [_markers(history, axis, columns), *chart, _axis_line(history, axis, columns)]
    at_cursor = f"{axis.position_text(history, cursor)}: allocated {bytes_text(allocated[marked])}"
    at_cursor += f", reserved {bytes_text(reserved[marked])}"
    begin, text = cursor_label(marked, at_cursor, columns)
    return [_markers(history, axis, columns), *chart, line(" " * (_LABEL_WIDTH + begin), Span(text, Role.CURSOR))]


def chart_columns(width: int) -> int:
    """Columns of the chart in a terminal of a width; the chart is at its right edge."""
    return width - _LABEL_WIDTH


def highest(series: Sequence[Summary], columns: int) -> list[float]:
    """The highest value of each column, so that no peak is lost at any width."""
    count = len(series)
    values = []
    for column in range(columns):
        begin = column * count // columns
        end = max(begin + 1, (column + 1) * count // columns)
        values.append(max(summary.high for summary in series[begin:end]))
    return values


def _markers(history: History, axis: HistoryAxis, columns: int) -> Line:
    """The markers of the peak and of failed allocations."""
    cells = [Span(" ")] * columns
    for oom in history.ooms:
        cells[_column(axis.share(history, oom.event, oom.seconds), columns)] = Span(_FAILURE, Role.ERROR)
    peak_column = _column(axis.share(history, history.peak_event, history.peak_seconds), columns)
    text = f"peak {bytes_text(history.peak.bytes)}"
    is_right = peak_column + 2 + len(text) <= columns
    label = f"{_PEAK} {text}" if is_right else f"{text} {_PEAK}"
    begin = peak_column if is_right else peak_column - len(label) + 1
    for offset, character in enumerate(label):
        cells[begin + offset] = Span(character, Role.ACCENT)
    return merged((Span(" " * _LABEL_WIDTH), *cells))


def _column(share: float, columns: int) -> int:
    return max(0, min(columns - 1, int(share * columns)))


def _axis_line(history: History, axis: HistoryAxis, columns: int) -> Line:
    end = axis.end_text(history)
    legend = f"0  ⣿ allocated  ⠒ reserved  (u: {'time' if axis is HistoryAxis.EVENTS else 'events'} axis)"
    begin = legend if history.has_times and len(legend) + len(end) < columns else "0"
    return line(Span(" " * _LABEL_WIDTH + begin + end.rjust(columns - len(begin)), Role.DIM))
