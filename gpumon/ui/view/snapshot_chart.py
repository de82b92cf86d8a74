"""The course of a snapshot's history: what was allocated under a line of what was reserved, with the peak marked."""

from collections.abc import Sequence
from enum import Enum
from itertools import repeat
from typing import Final

from gpumon.core.timeline import Summary
from gpumon.core.units import bytes_text
from gpumon.snapshots.model import Course, History
from gpumon.ui.paint.layers import layers
from gpumon.ui.paint.line import Line, Role, Span, line, merged
from gpumon.ui.view.snapshot import seconds_text

_LABEL_WIDTH: Final = 10
_LEAST_WIDTH: Final = 20
_PEAK: Final = "▼"
_FAILURE: Final = "✗"


class Axis(Enum):
    """What goes from left to right, by the words for it."""

    EVENTS = "events"
    TIME = "time"

    def course(self, history: History) -> Course:
        """The course along it."""
        return history.by_event if self is Axis.EVENTS else history.by_time

    def share(self, history: History, event: int, seconds: float) -> float:
        """Where on it something was, from 0 to 1."""
        if self is Axis.EVENTS:
            return event / history.events
        return seconds / history.duration_seconds if history.duration_seconds else 0.0

    def end_text(self, history: History) -> str:
        """What stands at its end."""
        return f"{history.events:,} events" if self is Axis.EVENTS else seconds_text(history.duration_seconds)


def course_lines(history: History, axis: Axis, width: int, height: int) -> list[Line]:
    """The chart with a line of marks above it and its axis below.

    Args:
        history: The history.
        axis: What goes from left to right.
        width: Cells of a line.
        height: Rows of the chart itself.
    """
    columns = width - _LABEL_WIDTH
    if columns < _LEAST_WIDTH or height < 1:
        return []
    allocated, reserved = (highest(each, columns) for each in axis.course(history))
    top = max(*allocated, *reserved, 1.0)
    rows = layers(allocated, reserved, list(repeat(None, columns)), top, height)
    labels = [bytes_text(top), *repeat("", height - 2), "0"] if height > 1 else [bytes_text(top)]
    drawn = [
        line(Span(f"{label:>{_LABEL_WIDTH - 1}} ", Role.DIM), *row) for label, row in zip(labels, rows, strict=True)
    ]
    return [_marks(history, axis, columns), *drawn, _axis_line(history, axis, columns)]


def highest(course: Sequence[Summary], columns: int) -> list[float]:
    """The highest of each column, so that no peak is lost whatever the width."""
    count = len(course)
    found = []
    for column in range(columns):
        begin = column * count // columns
        end = max(begin + 1, (column + 1) * count // columns)
        found.append(max(each.high for each in course[begin:end]))
    return found


def _marks(history: History, axis: Axis, columns: int) -> Line:
    """The peak, and where memory ran out."""
    cells = [Span(" ")] * columns
    for oom in history.ooms:
        cells[_column(axis.share(history, oom.event, oom.seconds), columns)] = Span(_FAILURE, Role.ERROR)
    place = _column(axis.share(history, history.peak_event, history.peak_seconds), columns)
    text = f"peak {bytes_text(history.peak.bytes)}"
    is_right = place + 2 + len(text) <= columns
    told = f"{_PEAK} {text}" if is_right else f"{text} {_PEAK}"
    begin = place if is_right else place - len(told) + 1
    for offset, character in enumerate(told):
        cells[begin + offset] = Span(character, Role.ACCENT)
    return merged((Span(" " * _LABEL_WIDTH), *cells))


def _column(share: float, columns: int) -> int:
    return max(0, min(columns - 1, int(share * columns)))


def _axis_line(history: History, axis: Axis, columns: int) -> Line:
    end = axis.end_text(history)
    legend = f"0  ⣿ allocated  ⠒ reserved  (x: over {'time' if axis is Axis.EVENTS else 'events'})"
    begin = legend if history.has_times and len(legend) + len(end) < columns else "0"
    return line(Span(" " * _LABEL_WIDTH + begin + end.rjust(columns - len(begin)), Role.DIM))
