"""Many GPUs at once: one cell per GPU with its value now, or one row per GPU with its values over time."""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from math import ceil
from typing import Final, NamedTuple

from typing_extensions import Self

from gpumon.core.metrics import METRICS
from gpumon.core.model import DeviceState
from gpumon.core.store import BUCKET_SECONDS
from gpumon.core.units import MISSING, compact_gibibytes_text, counted, percent_of, percent_text
from gpumon.present.device_table import DeviceRow, owner_spans, value_or_mark
from gpumon.present.limits import limit_of
from gpumon.present.metric_style import load_role, temperature_role
from gpumon.present.paint.line import Line, Role, Span, clipped, cut, merged, plain, width_of
from gpumon.present.paint.sparkline import block
from gpumon.present.time_axis import TimeWindow, axis_text

_VALUE_CELLS: Final = 5
_MAX_TEMPERATURE: Final = 100.0
_MIN_TEMPERATURE: Final = 20.0
_STEPS: Final = (4, 8, 16, 32, 64)
"""Preferred numbers of GPUs in a row, so that the number of a GPU can be read from its place."""


_SHADES: Final = (
    ("·", Role.DIM),
    ("░", Role.LOAD_LOW),
    ("▒", Role.LOAD_LOW),
    ("▓", Role.LOAD_MEDIUM),
    ("█", Role.LOAD_HIGH),
)
_MIN_SHADED_SHARE: Final = 0.01
_READING_CELLS: Final = 8
_OWNER_CELLS: Final = 28
_MIN_WIDTH_FOR_OWNER: Final = 100


class MapMode(Enum):
    """What a map of GPUs shows."""

    @property
    def next(self) -> Self:
        """The mode after this one, or the first one."""
        modes = list(type(self))
        return modes[(modes.index(self) + 1) % len(modes)]


class HeatMode(MapMode):
    """What the map shows, and in which order; the value is its name for the user."""

    UTILIZATION = "utilization"
    MEMORY = "memory"
    TEMPERATURE = "temperature"
    IDLE = "utilization, idle first"


class HistoryMode(MapMode):
    """What the map over time shows; the value is the metric."""

    UTILIZATION = "utilization_gpu_percent"
    SM = "sm_activity_percent"
    TENSOR = "tensor_activity_percent"
    MEMORY = "memory_used_bytes"
    POWER = "power_watts"
    TEMPERATURE = "temperature_celsius"

    @property
    def is_on_demand(self) -> bool:
        """Whether the metric is read only of the GPUs that a screen shows."""
        return self in {HistoryMode.SM, HistoryMode.TENSOR}


class HeatMap(NamedTuple):
    """A drawn map.

    Attributes:
        lines: The lines, those around the selected GPU if not all have room.
        keys: Keys of the devices in the order of the map.
        columns: Number of GPUs in a row.
        first_row: Number of the first row that is shown.
        label_width: Cells before the first GPU of a row.
        cell_width: Cells of a GPU.
    """

    lines: list[Line]
    keys: tuple[str, ...]
    columns: int
    first_row: int
    label_width: int
    cell_width: int

    def key_at(self, x: int, y: int) -> str | None:
        """The device at a cell of the map, or None."""
        column = (x - self.label_width) // self.cell_width
        index = (self.first_row + y) * self.columns + column
        return self.keys[index] if 0 <= column < self.columns and 0 <= index < len(self.keys) else None


class _CellLayout(NamedTuple):
    """How much of a GPU is shown: its number, how many blocks, its value, and the cells after it."""

    has_label: bool
    blocks: int
    has_value: bool
    gap: int = 0

    def width(self, labels: int) -> int:
        """Cells of a GPU whose number has ``labels`` cells; the first cell is for the mark of the selected one."""
        label = labels + 1 if self.has_label else 0
        return 1 + label + self.blocks + (_VALUE_CELLS if self.has_value else 0) + self.gap


_MAX_EXTRA_BLOCKS: Final = 5
"""Blocks that a GPU gets in addition where there is room."""
_LAYOUTS: Final = (
    _CellLayout(has_label=True, blocks=3, has_value=True, gap=2),
    _CellLayout(has_label=True, blocks=1, has_value=True),
    _CellLayout(has_label=True, blocks=1, has_value=False),
    _CellLayout(has_label=False, blocks=1, has_value=False),
)
"""From the most to the least detailed."""


def heat_map_height(rows: Sequence[DeviceRow], width: int, max_lines: int) -> int:
    """The number of lines that a map takes."""
    labels = max((width_of(row.device.label) for row in rows), default=1)
    _, columns = _layout(len(rows), labels, width, max_lines)
    return max(1, min(max_lines, ceil(len(rows) / columns)))


def heat_map(rows: Sequence[DeviceRow], mode: HeatMode, selected: str | None, width: int, height: int) -> HeatMap:
    """Draw the map, with as much of each GPU as there is room for.

    Args:
        rows: The devices.
        mode: What is shown, and in which order.
        selected: Key of the device that is marked, or None.
        width: Cells of a line.
        height: Lines.
    """
    ordered = sorted(rows, key=_idleness) if mode is HeatMode.IDLE else list(rows)
    labels = max((width_of(row.device.label) for row in rows), default=1)
    layout, columns = _layout(len(rows), labels, width, height)
    label_width = _label_width(layout, labels)
    keys = tuple(row.device.key for row in ordered)
    current = keys.index(selected) // columns if selected in keys else 0
    total = ceil(len(rows) / columns)
    first = max(0, min(current - height // 2, total - height))
    lines = []
    for number in range(first, min(total, first + height)):
        members = ordered[number * columns : (number + 1) * columns]
        spans = [] if layout.has_label else [Span(f" {members[0].device.label:>{labels}} ", Role.DIM)]
        for row in members:
            spans += _cell(row, mode, layout, labels, is_selected=row.device.key == selected)
        lines.append(cut(merged(spans), width))
    return HeatMap(lines, keys, columns, first, label_width, layout.width(labels))


def history_map(rows: Sequence[DeviceRow], mode: HistoryMode, selected: str | None, width: int, height: int) -> HeatMap:
    """Draw one row per GPU: its values over time as shades, the newest at the right, its value now, and its owner.

    Args:
        rows: The devices.
        mode: What is shown.
        selected: Key of the device that is marked, or None.
        width: Cells of a line.
        height: Lines, the time axis included.
    """
    keys = tuple(row.device.key for row in rows)
    labels = max((width_of(row.device.label) for row in rows), default=1)
    owner = _OWNER_CELLS if width >= _MIN_WIDTH_FOR_OWNER else 0
    columns = max(1, width - labels - 4 - _READING_CELLS - owner)
    current = keys.index(selected) if selected in keys else 0
    first = max(0, min(current - height // 2, len(rows) - height + 1))
    lines = []
    for row in rows[first : first + max(1, height - 1)]:
        is_selected = row.device.key == selected
        mark = Span(f" {'▸' if is_selected else ' '}{row.device.label:>{labels}} ", Role.ACCENT)
        cells = [_shade(row, mode, value) for value in row.history(mode.value, columns)]
        text = value_or_mark(row, mode.value, partial(_now, mode))
        value = Span(f"{text:>{_READING_CELLS}} ", Role.CURSOR if is_selected else Role.PLAIN)
        who = owner_spans(row.owner, row.user_width, owner) if owner else ()
        lines.append(cut(merged([mark, *cells, value, *who]), width))
    axis = axis_text(TimeWindow(0, columns, BUCKET_SECONDS), 0.0)
    lines.append((Span(f"{' ' * (labels + 3)}{axis}", Role.DIM),))
    return HeatMap(lines, keys, 1, first, 0, width)


def _shade(row: DeviceRow, mode: HistoryMode, value: float | None) -> Span:
    """A value as a shade, on the scale of its metric."""
    if value is None:
        return Span(" ")
    low = _MIN_TEMPERATURE if mode is HistoryMode.TEMPERATURE else 0.0
    share = (value - low) / max(1e-9, (limit_of(mode.value, row.device) or 100.0) - low)
    step = max(0, min(len(_SHADES) - 1, int(share * (len(_SHADES) - 1)) + (share >= _MIN_SHADED_SHARE)))
    return Span(*_SHADES[step])


def _now(mode: HistoryMode, value: float) -> str:
    """A value with its unit."""
    if mode is HistoryMode.MEMORY:
        return f"{compact_gibibytes_text(value)} GiB"
    return {HistoryMode.POWER: f"{value:.0f} W", HistoryMode.TEMPERATURE: f"{value:.0f}°"}.get(
        mode, percent_text(value)
    )


def _layout(devices: int, labels: int, width: int, max_rows: int) -> tuple[_CellLayout, int]:
    """The most detailed cells with which all devices have room, and the number of devices in a row."""
    columns = 1
    for layout in _LAYOUTS:
        room = max(1, (width - _label_width(layout, labels)) // layout.width(labels))
        columns = max((step for step in _STEPS if step <= room), default=room)
        if ceil(devices / columns) <= max_rows:
            spare = width // columns - layout.width(labels)
            extra = min(_MAX_EXTRA_BLOCKS, spare) if layout.gap else 0
            return layout._replace(blocks=layout.blocks + extra), columns
    return _LAYOUTS[-1], columns


def _label_width(layout: _CellLayout, labels: int) -> int:
    """Cells before the first GPU of a row: the number of that GPU where the cells have none."""
    return 0 if layout.has_label else labels + 2


def _cell(row: DeviceRow, mode: HeatMode, layout: _CellLayout, labels: int, *, is_selected: bool) -> list[Span]:
    glyph, text, role = _value(row, mode)
    mark = "▸" if is_selected else " "
    label = f"{row.device.label:>{labels}} " if layout.has_label else ""
    spans = [Span(f"{mark}{label}", Role.ACCENT if is_selected else Role.DIM)]
    is_bare = is_selected and not layout.has_value
    spans.append(Span(glyph * layout.blocks, Role.CURSOR if is_bare else role))
    if layout.has_value:
        value_role = role if role in {Role.ERROR, Role.WARNING, Role.DIM} else Role.PLAIN
        spans.append(Span(f"{text:>{_VALUE_CELLS}}", Role.CURSOR if is_selected else value_role))
    spans.append(Span(" " * layout.gap))
    return spans


def _value(row: DeviceRow, mode: HeatMode) -> tuple[str, str, Role]:
    """The block, the number and the role of a device."""
    device = row.device
    if device.state is not DeviceState.OK:
        return "✗", device.state.value[: _VALUE_CELLS - 1].upper(), Role.ERROR
    percent, text, role = _READERS[mode](row)
    if percent is None:
        return MISSING, MISSING, Role.DIM
    if row.age_seconds is not None:
        return "?", text, Role.WARNING
    if percent < 1:
        return "·", text, Role.DIM
    return block(percent), text, role


_Reading = tuple[float | None, str, Role]


def _utilization(row: DeviceRow) -> _Reading:
    value = row.device.get("utilization_gpu_percent")
    return value, "" if value is None else percent_text(value), load_role(value)


def _memory(row: DeviceRow) -> _Reading:
    value = percent_of(row.device.get("memory_used_bytes"), row.device.get("memory_total_bytes"))
    return value, "" if value is None else percent_text(value), load_role(value)


def _temperature(row: DeviceRow) -> _Reading:
    """The share of the range from a cool GPU to its slowdown temperature."""
    value = row.device.get("temperature_celsius")
    if value is None:
        return None, "", Role.DIM
    top = row.device.get("temperature_slowdown_celsius") or _MAX_TEMPERATURE
    percent = 100 * max(0.02, min(1.0, (value - _MIN_TEMPERATURE) / max(1.0, top - _MIN_TEMPERATURE)))
    warning = temperature_role(row.device, row.thresholds)
    return percent, f"{value:.0f}°", load_role(percent) if warning is Role.PLAIN else warning


_READERS: Final[dict[HeatMode, Callable[[DeviceRow], _Reading]]] = {
    HeatMode.UTILIZATION: _utilization,
    HeatMode.MEMORY: _memory,
    HeatMode.TEMPERATURE: _temperature,
    HeatMode.IDLE: _utilization,
}


def _idleness(row: DeviceRow) -> tuple[bool, bool, bool]:
    """Free devices first, then idle ones, then the others, in their order."""
    is_ok = row.device.state is DeviceState.OK
    return not (is_ok and row.owner.is_free), not row.owner.idle.is_idle, not is_ok


def history_heading(rows: Sequence[DeviceRow], mode: HistoryMode, width: int) -> Line:
    """The heading of the map over time: what it shows, its shades, and the keys that change it."""
    left = f" {METRICS[mode.value].label} of {counted(len(rows), 'GPU')} over time"
    shades = "".join(glyph for glyph, _ in _SHADES)
    right = f"0 {shades} {'slowdown' if mode is HistoryMode.TEMPERATURE else 'limit'}   s: other value  v: table "
    room = width - width_of(left)
    return (Span(left + (f"{right:>{room}}" if width_of(right) < room else " " * room), Role.HEADING),)


def heat_heading(rows: Sequence[DeviceRow], mode: HeatMode, selected: str | None, width: int) -> Line:
    """The heading of the map: what it shows, the selected GPU, and the keys that change the map."""
    left = f" {len(rows)} GPUs by {mode.value}"
    row = next((row for row in rows if row.device.key == selected), None)
    if row is not None:
        _, text, _ = _value(row, mode)
        left += f"  ▸{row.device.label} {text} {plain(owner_spans(row.owner, width_of(row.owner.user)))}"
    right = "s: other value  v: table "
    left = clipped(left, width)
    room = width - width_of(left)
    return (Span(left + (f"{right:>{room}}" if width_of(right) < room else " " * room), Role.HEADING),)
