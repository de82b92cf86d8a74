"""One GPU over time: charts of metrics on one axis, and below them throttling and events on the same axis."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.core.episodes import HistoryEventKind
from gpumon.core.metrics import METRICS
from gpumon.core.model import Device, DeviceState, Frame, short_product_name
from gpumon.core.store import DeviceHistory
from gpumon.core.throttle_reasons import FAULT_REASONS, THROTTLE_LABELS
from gpumon.core.units import MISSING, age_text, counted, duration_text, value_text
from gpumon.present.device_table import shares_memory
from gpumon.present.limits import limited_text
from gpumon.present.metric_chart import MetricChart
from gpumon.present.paint.line import Line, Role, Span, clipped, line, width_of
from gpumon.present.time_axis import TimeWindow, axis_text

GUTTER: Final = 13
"""Cells at the left for scales and row labels."""
MAX_CHARTS: Final = 4
DEFAULT_METRICS: Final = ("utilization_gpu_percent", "power_watts", "memory_used_bytes")
_MAX_CHART_HEIGHT: Final = 10
_MIN_CHART_HEIGHT: Final = 3
_CHARTS_SHARE: Final = 0.68
_OTHER_LINES: Final = 4
"""Title, two lines of notes and the footer."""
_MIN_HEIGHT: Final = 6 + _OTHER_LINES
_MIN_WIDTH: Final = 40
_HELD: Final = "▄"
_ROLES: Final = (Role.GPU_HISTORY, Role.MEMORY_HISTORY)
_EVENT_GLYPHS: Final = {
    HistoryEventKind.WORKLOAD: "┆",
    HistoryEventKind.DEVICE: "!",
    HistoryEventKind.DRIVER: "x",
    HistoryEventKind.XID: "X",
}
_MAX_EVENT_ENTRIES: Final = 20
_MAX_CACHED_LABELS: Final = 64


class ChartPlan(NamedTuple):
    """How the charts share a screen.

    Attributes:
        charts: Number of charts.
        height: Rows of each chart, without its heading.
        reasons: Maximum number of rows for throttle reasons.
    """

    charts: int
    height: int
    reasons: int


def plan_charts(width: int, height: int, requested: int) -> ChartPlan:
    """How many of the requested charts fit on a screen, and how high they are."""
    room = int((height - _OTHER_LINES) * _CHARTS_SHARE)
    reasons = 1 if height < 30 else 3
    if width < _MIN_WIDTH or height < _MIN_HEIGHT:
        return ChartPlan(0, 0, 0)
    room -= 1 + (reasons + 1 if height > 16 else 0)
    charts = max(1, min(requested, room // (_MIN_CHART_HEIGHT + 1)))
    return ChartPlan(charts, max(1, min(_MAX_CHART_HEIGHT, room // charts - 1)), reasons if height > 16 else 0)


def title_text(device: Device, frame: Frame) -> str:
    """The GPU, its CUDA index, the driver version, and its state if it does not respond."""
    name = short_product_name(device.name) or MISSING
    cuda = "" if device.cuda_index is None else f"  CUDA {device.cuda_index}"
    driver = "" if frame.driver_version is None else f"  driver {frame.driver_version}"
    age = f" {age_text(device.age_seconds)}" if device.state is not DeviceState.OK and device.age_seconds else ""
    state = "" if device.state is DeviceState.OK else f"  {device.state.value.upper()}{age}"
    memory = "  memory shared with the host" if shares_memory(device) else ""
    return f"GPU {device.label}  {name}{cuda}{driver}{memory}{state}"


def chart_lines(chart: MetricChart, index: int, device: Device, width: int) -> list[Line]:
    """A heading with the value now and the range shown, then the chart with its scale at the left.

    Args:
        chart: The chart.
        index: Its index on the screen, which decides its color.
        device: The device.
        width: Cells of a line.
    """
    metric = METRICS[chart.metric]
    role = _ROLES[index % len(_ROLES)]
    lines = [_chart_heading(chart, device, width)]
    last = len(chart.rows) - 1
    for row, text in enumerate(chart.rows):
        label = value_text(chart.scale, metric.unit) if row == 0 else "0" if row == last else ""
        lines.append((gutter(label, "┤" if label else "│"), Span(text, role)))
    return lines


@lru_cache(maxsize=_MAX_CACHED_LABELS)
def gutter(label: str, border: str) -> Span:
    """The cells left of a chart row: its label and the edge of the chart."""
    return Span(f"{clipped(label, GUTTER - 2):>{GUTTER - 2}} {border}", Role.DIM)


def _chart_heading(chart: MetricChart, device: Device, width: int) -> Line:
    metric = METRICS[chart.metric]
    now = limited_text(chart.metric, device)
    text = "nothing measured in the time shown"
    if chart.summary is not None:
        low, mean, high = (value_text(_rounded(value), metric.unit) for value in chart.summary)
        text = f"min {low}  mean {mean}  max {high}"
    left = f" {metric.label}  "
    room = width - width_of(left) - width_of(now) - 1
    fits = width_of(text) + 2 <= room
    return line(Span(left, Role.ACCENT), now, Span(f"{text:>{room}} " if fits else "", Role.DIM))


def _rounded(value: float) -> float:
    """History keeps six digits; more than three decimals of a mean carry no information."""
    return round(value, 1) if abs(value) >= 1 else round(value, 3)


def axis_line(window: TimeWindow, now_seconds: float) -> Line:
    """The time axis below all charts."""
    label = f"{_column_text(window.column_seconds)}/col"
    return line(gutter(label, "└"), Span(axis_text(window, now_seconds), Role.DIM))


def _column_text(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:g} s"
    return f"{seconds / 60:g} min" if seconds < 3600 else f"{seconds / 3600:g} h"


def throttle_lines(history: DeviceHistory, window: TimeWindow, max_lines: int) -> Iterator[Line]:
    """A row per throttle reason in the time shown, filled while it was active. The last row counts those left out."""
    shown = [(reason, cells) for reason in THROTTLE_LABELS if _HELD in (cells := _held_cells(history, reason, window))]
    left_out = len(shown) - max_lines
    for index, (reason, cells) in enumerate(shown[:max_lines]):
        label = THROTTLE_LABELS[reason]
        role = Role.WARNING if reason in FAULT_REASONS else Role.PLAIN
        if left_out > 0 and index == max_lines - 1:
            ending = f" +{left_out}"
            label = clipped(label, GUTTER - 2 - len(ending)) + ending
        yield line(gutter(label, "│"), Span(cells, role))


def _held_cells(history: DeviceHistory, reason: str, window: TimeWindow) -> str:
    cells = [" "] * window.width
    for episode in history.throttling.of(reason):
        first, last = window.index_of(episode.begin_seconds), window.index_of(episode.end_seconds)
        for index in range(max(0, first), min(last, window.width - 1) + 1):
            cells[index] = _HELD
    return "".join(cells)


def event_lines(history: DeviceHistory, window: TimeWindow) -> Iterator[Line]:
    """A row with a glyph per event, and the text of the newest one after its glyph where there is room."""
    events = [event for event in history.events if 0 <= window.index_of(event.seconds) < window.width]
    if not events:
        return
    cells = [" "] * window.width
    for event in events:
        cells[window.index_of(event.seconds)] = _EVENT_GLYPHS[event.kind]
    text = f" {events[-1].text}"
    begin = window.index_of(events[-1].seconds) + 1
    following = cells[begin:]
    if len(following) >= len(text) and not "".join(following).strip():
        cells[begin : begin + len(text)] = text
    yield line(gutter("events", "│"), Span("".join(cells), Role.WARNING))


def heading_line(shown: int, requested: int, width: int) -> Line:
    """The line between the charts and the list of all values."""
    text = " All values"
    if shown < requested:
        text += f"   ({counted(requested - shown, 'more chart')} in a higher terminal)"
    return line(Span(clipped(text, width).ljust(width), Role.HEADING))


def history_entries(history: DeviceHistory, window: TimeWindow, now_seconds: float) -> Iterator[tuple[str, str, str]]:
    """How long each throttle reason was active in the time shown, then events, newest first: label, value and note."""
    until = min(window.end_seconds, now_seconds)
    shown = max(0.0, until - window.begin_seconds)
    for reason, label in THROTTLE_LABELS.items():
        held = history.throttling.held_seconds(reason, window.begin_seconds, until)
        if held:
            note = f"Time in which {reason} was active, of the {duration_text(shown)} that the charts show."
            yield f"Throttled: {label}", duration_text(held), note
    for event in list(history.events)[: -_MAX_EVENT_ENTRIES - 1 : -1]:
        yield "Event", f"{duration_text(now_seconds - event.seconds)} ago", event.text
