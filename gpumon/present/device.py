"""One GPU over time: charts of metrics on one axis, and below them throttling and events on the same axis."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpumon.core.episodes import HistoryEventKind
from gpumon.core.model import Device, DeviceState, Frame, short_product_name
from gpumon.core.store import DeviceHistory, Store
from gpumon.core.throttle_reasons import FAULT_REASONS, THROTTLE_LABELS
from gpumon.core.units import MISSING, age_text, counted, duration_text
from gpumon.present.device_table import shares_memory
from gpumon.present.metric_chart import Track
from gpumon.present.paint.area import GUTTER, gutter
from gpumon.present.paint.line import SERIES_ROLES, Line, Role, Span, clipped, line
from gpumon.present.time_axis import TimeWindow

MAX_CHARTS: Final = 4
DEFAULT_METRICS: Final = ("utilization_gpu_percent", "temperature_celsius", "memory_used_bytes", "power_watts")
MAX_OVERLAY: Final = len(SERIES_ROLES)
"""GPUs that one chart can show."""
_MAX_CHART_HEIGHT: Final = 16
_GOOD_CHART_HEIGHT: Final = 8
"""Charts are this high where there is room; what is left is shared with the table of values."""
_MIN_CHART_HEIGHT: Final = 4
_CHARTS_SHARE: Final = 0.68
_OTHER_LINES: Final = 6
"""Title, time axis, heading of the table, two lines of notes and the footer."""
_MIN_TABLE_LINES: Final = 3
_MIN_HEIGHT: Final = 9
_MIN_WIDTH: Final = 40
_HELD: Final = "▄"
_EVENT_GLYPHS: Final = {
    HistoryEventKind.WORKLOAD: "┆",
    HistoryEventKind.DEVICE: "!",
    HistoryEventKind.DRIVER: "x",
    HistoryEventKind.XID: "X",
}
_MAX_EVENT_ENTRIES: Final = 20


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
    if width < _MIN_WIDTH or height < _MIN_HEIGHT:
        return ChartPlan(0, 0, 0)
    is_low = height <= 16
    reasons = 0 if is_low else 1 if height < 30 else 2 if height < 45 else 3
    aligned = reasons + 1 if reasons else 0  # with the row of events
    room = height - _OTHER_LINES - aligned - (0 if is_low else _MIN_TABLE_LINES)  # a low table has no heading
    charts = max(1, min(requested, room // (_MIN_CHART_HEIGHT + 1)))
    share = max(_GOOD_CHART_HEIGHT, int(height * _CHARTS_SHARE - aligned) // charts - 1)
    return ChartPlan(charts, max(1, min(_MAX_CHART_HEIGHT, share, room // charts - 1)), reasons)


def title_text(device: Device, frame: Frame) -> str:
    """The GPU, its CUDA index, the driver version, and its state if it does not respond."""
    name = short_product_name(device.name) or MISSING
    cuda = "" if device.cuda_index is None else f"  CUDA {device.cuda_index}"
    driver = "" if frame.driver_version is None else f"  driver {frame.driver_version}"
    age = f" {age_text(device.age_seconds)}" if device.state is not DeviceState.OK and device.age_seconds else ""
    state = "" if device.state is DeviceState.OK else f"  {device.state.value.upper()}{age}"
    memory = "  memory shared with the host" if shares_memory(device) else ""
    return f"GPU {device.label}  {name}{cuda}{driver}{memory}{state}"


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


def event_lines(history: DeviceHistory, window: TimeWindow, cursor: int | None = None) -> Iterator[Line]:
    """A row with a glyph per event; where there is room, the text of the event at the cursor, else of the newest one.

    Args:
        history: The history.
        window: The time shown.
        cursor: Index of the column under the cursor, or None.
    """
    events = [event for event in history.events if 0 <= window.index_of(event.seconds) < window.width]
    if not events:
        return
    cells = [" "] * window.width
    for event in events:
        cells[window.index_of(event.seconds)] = _EVENT_GLYPHS[event.kind]
    described = [event for event in events if window.index_of(event.seconds) == cursor] or events
    text = f" {described[-1].text}"
    begin = window.index_of(described[-1].seconds) + 1
    following = cells[begin:]
    if len(following) >= len(text) and (described is not events or not "".join(following).strip()):
        cells[begin : begin + len(text)] = text
    yield line(gutter("events", "│"), Span("".join(cells), Role.WARNING))


def tracks_of(device: Device, overlay: Sequence[Device], store: Store) -> list[Track]:
    """What the charts of a device show: the device, and the GPUs chosen for the overlay in their order.

    Args:
        device: The device of the screen.
        overlay: The GPUs to draw in one chart; fewer than two stand for the device alone.
        store: The histories.
    """
    devices = overlay if len(overlay) > 1 else [device]
    histories = [store.of_device(shown.key) for shown in devices]
    timelines = [None if history is None else history.timeline for history in histories]
    return [Track(*track) for track in zip(devices, timelines, SERIES_ROLES, strict=False)]


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
