"""One GPU over time: charts of chosen metrics on one axis, and under them throttling and events on the same axis."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.core.episodes import EventKind
from gpumon.core.metrics import METRICS
from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.store import DeviceHistory
from gpumon.core.units import MISSING, age_text, duration_text, value_text
from gpumon.ui.paint.line import Line, Role, Span, clipped, line, width_of
from gpumon.ui.view.devices import SLOWED_BY_FAULT, THROTTLE_WORDS, shares_memory
from gpumon.ui.view.limits import limited_text
from gpumon.ui.view.moving_chart import MovingChart
from gpumon.ui.view.window import Window, axis_text

GUTTER: Final = 13
"""Cells at the left, in which the scales and the names of the rows stand."""
MOST_CHARTS: Final = 4
DEFAULT_METRICS: Final = ("utilization_gpu_percent", "power_watts", "memory_used_bytes")
_MOST_HEIGHT: Final = 10
_LEAST_HEIGHT: Final = 3
_CHARTS_SHARE: Final = 0.68
_LINES_AROUND: Final = 4
"""Title, the note of two lines and the footer."""
_LEAST_ROOM: Final = 6
_LEAST_WIDTH: Final = 40
_HELD: Final = "▄"
_ROLES: Final = (Role.GPU_HISTORY, Role.MEMORY_HISTORY)
_EVENT_GLYPHS: Final = {
    EventKind.WORKLOAD: "┆",
    EventKind.DEVICE: "!",
    EventKind.DRIVER: "x",
    EventKind.XID: "X",
}
_MOST_EVENT_ENTRIES: Final = 20
_MOST_LABELS: Final = 64


class Plan(NamedTuple):
    """What has room.

    Attributes:
        charts: Number of charts.
        height: Rows of each, without its heading.
        reasons: Rows for throttle reasons at most.
    """

    charts: int
    height: int
    reasons: int


def plan(width: int, height: int, wanted: int) -> Plan:
    """How many of the wanted charts have room on a screen, and how high they are."""
    room = int((height - _LINES_AROUND) * _CHARTS_SHARE)
    reasons = 1 if height < 30 else 3
    if width < _LEAST_WIDTH or height < _LEAST_ROOM + _LINES_AROUND:
        return Plan(0, 0, 0)
    room -= 1 + (reasons + 1 if height > 16 else 0)
    charts = max(1, min(wanted, room // (_LEAST_HEIGHT + 1)))
    return Plan(charts, max(1, min(_MOST_HEIGHT, room // charts - 1)), reasons if height > 16 else 0)


def title_text(device: Device, frame: Frame) -> str:
    """Which GPU it is, how CUDA counts it, under which driver, and whether it answers."""
    name = (device.name or MISSING).removeprefix("NVIDIA ")
    cuda = "" if device.cuda_index is None else f"  CUDA {device.cuda_index}"
    driver = "" if frame.driver_version is None else f"  driver {frame.driver_version}"
    age = f" {age_text(device.age_seconds)}" if device.state is not DeviceState.OK and device.age_seconds else ""
    state = "" if device.state is DeviceState.OK else f"  {device.state.value.upper()}{age}"
    memory = "  memory shared with the host" if shares_memory(device) else ""
    return f"GPU {device.label}  {name}{cuda}{driver}{memory}{state}"


def chart_lines(drawn: MovingChart, place: int, device: Device, width: int) -> list[Line]:
    """A heading with the value now and the course in figures, then the chart with its scale at the left."""
    metric = METRICS[drawn.metric]
    role = _ROLES[place % len(_ROLES)]
    lines = [_chart_heading(drawn, device, width)]
    last = len(drawn.rows) - 1
    for row, text in enumerate(drawn.rows):
        label = value_text(drawn.scale.top, metric.unit) if row == 0 else "0" if row == last else ""
        lines.append((gutter(label, "┤" if label else "│"), Span(text, role)))
    return lines


@lru_cache(maxsize=_MOST_LABELS)
def gutter(label: str, border: str) -> Span:
    """What stands left of a row of a chart: its label, and the chart's edge."""
    return Span(f"{clipped(label, GUTTER - 2):>{GUTTER - 2}} {border}", Role.DIM)


def _chart_heading(drawn: MovingChart, device: Device, width: int) -> Line:
    metric = METRICS[drawn.metric]
    now = limited_text(drawn.metric, device)
    shown = drawn.summary
    course = "nothing was measured in the time shown"
    if shown is not None:
        low, mean, high = (value_text(_rounded(value), metric.unit) for value in shown)
        course = f"lowest {low}  mean {mean}  highest {high}"
    left = f" {metric.label}  "
    room = width - width_of(left) - width_of(now) - 1
    fits = width_of(course) + 2 <= room
    return line(Span(left, Role.ACCENT), now, Span(f"{course:>{room}} " if fits else "", Role.DIM))


def _rounded(value: float) -> float:
    """Six digits are what history holds; a mean says no more than three decimals."""
    return round(value, 1) if abs(value) >= 1 else round(value, 3)


def axis_line(window: Window, now_seconds: float) -> Line:
    """The time under all charts."""
    label = f"{_column_text(window.column_seconds)}/col"
    return line(gutter(label, "└"), Span(axis_text(window, now_seconds), Role.DIM))


def _column_text(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:g} s"
    return f"{seconds / 60:g} min" if seconds < 3600 else f"{seconds / 3600:g} h"


def throttle_lines(history: DeviceHistory, window: Window, most: int) -> Iterator[Line]:
    """A row a throttle reason that held in the time shown: filled where it did. Those left out are counted."""
    shown = [(reason, cells) for reason in THROTTLE_WORDS if _HELD in (cells := _held_cells(history, reason, window))]
    for place, (reason, cells) in enumerate(shown[:most]):
        more = len(shown) - most
        words = THROTTLE_WORDS[reason]
        role = Role.WARNING if reason in SLOWED_BY_FAULT else Role.PLAIN
        label = f"{words} +{more}" if more > 0 and place == most - 1 else words
        yield line(gutter(label, "│"), Span(cells, role))


def _held_cells(history: DeviceHistory, reason: str, window: Window) -> str:
    cells = [" "] * window.width
    for episode in history.throttling.of(reason):
        first, last = window.place(episode.begin_seconds), window.place(episode.end_seconds)
        for place in range(max(0, first), min(last, window.width - 1) + 1):
            cells[place] = _HELD
    return "".join(cells)


def event_lines(history: DeviceHistory, window: Window) -> Iterator[Line]:
    """A row with a glyph wherever something happened, and after the newest one what it was, where that has room."""
    shown = [each for each in history.events if 0 <= window.place(each.seconds) < window.width]
    if not shown:
        return
    cells = [" "] * window.width
    for event in shown:
        cells[window.place(event.seconds)] = _EVENT_GLYPHS[event.kind]
    text = f" {shown[-1].text}"
    begin = window.place(shown[-1].seconds) + 1
    free = cells[begin:]
    if len(free) >= len(text) and not "".join(free).strip():
        cells[begin : begin + len(text)] = text
    yield line(gutter("events", "│"), Span("".join(cells), Role.WARNING))


def heading_line(shown: int, wanted: int, width: int) -> Line:
    """The line that parts the charts from the figures."""
    said = " Every figure"
    if shown < wanted:
        said += f"   ({wanted - shown} more chart{'s' if wanted - shown > 1 else ''} would need a higher terminal)"
    return line(Span(clipped(said, width).ljust(width), Role.HEADING))


def history_entries(history: DeviceHistory, window: Window, now_seconds: float) -> Iterator[tuple[str, str, str]]:
    """How long each throttle reason held in the time shown, and what happened, newest first; label, value and note."""
    until = min(window.end_seconds, now_seconds)
    shown = max(0.0, until - window.begin_seconds)
    for reason, words in THROTTLE_WORDS.items():
        held = history.throttling.held_seconds(reason, window.begin_seconds, until)
        if held:
            note = f"Time in which {reason} was in force, of the {duration_text(shown)} that the charts show."
            yield f"Clocks lowered: {words}", duration_text(held), note
    for event in list(history.events)[: -_MOST_EVENT_ENTRIES - 1 : -1]:
        yield "Event", f"{duration_text(now_seconds - event.seconds)} ago", event.text
