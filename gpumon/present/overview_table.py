"""The device table of the overview: bars for utilization and memory, a history, and the owner of each GPU."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from gpumon.core.model import Device, DeviceState
from gpumon.core.store import BUCKET_SECONDS
from gpumon.core.units import age_text, compact_gibibytes_text, megahertz_text, percent_of, percent_text
from gpumon.present.device_table import (
    DEVICE_CELLS,
    DeviceRow,
    device_position,
    index_cell,
    name_cell,
    notable_state,
    owner_spans,
    reading_cell,
    shares_memory,
    state_span,
    temperature_cell,
    value_or_mark,
    value_role,
)
from gpumon.present.metric_style import load_role, memory_role
from gpumon.present.paint.bar import fine_bar
from gpumon.present.paint.columns import Cells, columns
from gpumon.present.paint.line import Line, Role, Span, clipped, line, merged, width_of
from gpumon.present.paint.sparkline import dotted_history
from gpumon.present.paint.table import GAP, Column, PlacedColumn, cell_spans, table_width

ALERTS_HINT: Final = "→ 6 shows what to do"
"""Where the alerts screen is, which says what to do about a GPU that does not respond."""
_PERCENT_CELLS: Final = 5
_MEMORY_CELLS: Final = 11
_IDENTITY: Final = frozenset({"gpu", "name"})
"""Columns that a device keeps when it does not respond."""
_AFTER_STATE: Final = frozenset({"util-history", "memory-history"})
"""Columns up to which the state of a device that does not respond extends."""
_MIN_STATE_WIDTH: Final = 104
"""Narrower tables have no column for the state: the owner makes room for a state that a user must see."""


def overview_columns(devices: Sequence[Device], width: int) -> Sequence[Column[DeviceRow]]:
    """All columns of the device table, for the devices and the width of the table.

    The name is a default column where the models differ. A table that is too narrow for the state shows a state that
    matters with the owner.
    """
    is_mixed = len({device.name for device in devices}) > 1
    return _columns(is_mixed=is_mixed, has_state=width >= _MIN_STATE_WIDTH)


@lru_cache(maxsize=4)
def _columns(*, is_mixed: bool, has_state: bool) -> Sequence[Column[DeviceRow]]:
    """The columns, the same object for every frame."""
    columns = []
    for column in OVERVIEW_COLUMNS:
        if column.id == "name":
            columns.append(replace(column, is_optional=not is_mixed))
        elif column.id == "owner" and not has_state:
            columns.append(replace(column, cell=_state_or_owner))
        else:
            columns.append(column)
    return tuple(columns)


def overview_line(columns: Sequence[PlacedColumn[DeviceRow]], row: DeviceRow) -> Line:
    """A device in its columns. A device that does not respond has its state across them, then its history."""
    if row.device.state is DeviceState.OK:
        return _cells(columns, row)
    ids = [item.column.id for item in columns]
    first = next((index for index, name in enumerate(ids) if name not in _IDENTITY), len(ids))
    last = next((index for index, name in enumerate(ids) if name in _AFTER_STATE and index > first), len(ids))
    room = table_width(columns[first:last])
    text = clipped(_state_sentence(row, room), max(0, room))
    state = Span(text + " " * (room + GAP - width_of(text)), Role.ERROR)
    return merged([*_cells(columns[:first], row), state, *_cells(columns[last:], row)])


def _cells(columns: Sequence[PlacedColumn[DeviceRow]], row: DeviceRow) -> Line:
    return merged([span for item in columns for span in cell_spans(item, row)])


def _state_sentence(row: DeviceRow, width: int) -> str:
    """The state, its reason where there is room for it, and where to look."""
    problem = row.device.problems.get("state")
    reason = "" if problem is None else f": {problem.reason.rstrip('.')}"
    sentence = f"{state_span(row).text}{reason} {ALERTS_HINT}"
    return sentence if width_of(sentence) <= width else f"{state_span(row).text} {ALERTS_HINT}"


def _utilization(row: DeviceRow, width: int) -> Line:
    metric = "utilization_gpu_percent"
    percent = row.device.get(metric)
    text = value_or_mark(row, metric, percent_text)
    span = Span(f"{text:>{_PERCENT_CELLS}}", value_role(row, metric))
    return _bar_and_text(row, metric, percent, load_role(percent), span, width)


def _memory(row: DeviceRow, width: int) -> Line:
    device, metric = row.device, "memory_used_bytes"
    used, total = device.get(metric), device.get("memory_total_bytes")
    percent = percent_of(used, total)
    role = memory_role(device)
    bar_role = Role.MEMORY_HISTORY if role is Role.PLAIN else role
    text = value_or_mark(row, metric, compact_gibibytes_text)
    if total is not None:
        text = f"{'~' if shares_memory(device) else ''}{text}/{compact_gibibytes_text(total)} GiB"
    if role is Role.PLAIN:
        role = value_role(row, metric)
    else:
        text = f"!{text}"
    return _bar_and_text(row, metric, percent, bar_role, Span(f" {text:>{_MEMORY_CELLS}}", role), width)


def _bar_and_text(  # noqa: PLR0917 - what a bar has
    row: DeviceRow, metric: str, percent: float | None, role: Role, text: Span, width: int
) -> Line:
    """A bar and its value; a value that is missing has no bar, since an empty bar is a zero."""
    cells = max(0, width - width_of(text.text))
    if percent is None:
        return line(" " * cells, text)
    is_old = value_role(row, metric) is Role.DIM
    return line(*fine_bar(percent / 100, cells, Role.DIM if is_old else role), text)


def _history(row: DeviceRow, width: int) -> Span:
    values = row.history("utilization_gpu_percent", width)
    return Span(dotted_history(values, 100, row.marks(width)), Role.GPU_HISTORY)


def _memory_history(row: DeviceRow, width: int) -> Span:
    total = row.device.get("memory_total_bytes")
    values = row.history("memory_used_bytes", width)
    return Span(dotted_history(values, total, row.marks(width)), Role.MEMORY_HISTORY)


def _history_heading(label: str) -> Callable[[int], str]:
    """A function that returns the time range of a history."""
    return lambda width: f"{label} {age_text(width * BUCKET_SECONDS)}"


def _owner(row: DeviceRow, width: int) -> Line:
    return owner_spans(row.owner, row.user_width, width)


def _state_or_owner(row: DeviceRow, width: int) -> Line:
    """In a table without a column for the state, the user and the program make room for a state that matters."""
    state = notable_state(row)
    if state is None or row.device.state is not DeviceState.OK:
        return _owner(row, width)
    return line(state, "  ", *owner_spans(row.owner, 0))


def _reading(metric: str, scale: float = 1.0) -> Callable[[DeviceRow], float | None]:
    """The value of a metric, divided by the scale of the unit in the heading."""

    def value(row: DeviceRow) -> float | None:
        number = row.device.get(metric)
        return None if number is None else number / scale

    return value


def _sort_state(row: DeviceRow) -> str:
    """Errors first, then warnings, then the others by their text."""
    text, role = state_span(row)
    return f"{_STATE_ORDER.get(role, 2)}{text}"


_STATE_ORDER: Final = {Role.ERROR: 0, Role.WARNING: 1}

OVERVIEW_COLUMNS: Final[tuple[Column[DeviceRow], ...]] = columns(
    "devices",
    {
        "gpu": Cells(index_cell, lambda row: device_position(row.device)),
        "name": Cells(name_cell, lambda row: row.device.name, lambda row: row.device.name or ""),
        "util": Cells(_utilization, _reading("utilization_gpu_percent")),
        "memory": Cells(_memory, _reading("memory_used_bytes")),
        "temperature": Cells(temperature_cell, _reading("temperature_celsius")),
        # The power has no limit here: at its limit, it is what a busy GPU draws.
        "power": Cells(reading_cell("power_watts", "{:.0f} W".format), _reading("power_watts")),
        "sm-clock": Cells(reading_cell("clock_sm_hertz", megahertz_text), _reading("clock_sm_hertz", 1e6)),
        "state": Cells(lambda row, _: state_span(row), _sort_state),
        **{
            name: replace(DEVICE_CELLS[name], sort_key=_reading(metric, scale))
            for name, metric, scale in (
                ("memory-controller", "utilization_memory_percent", 1),
                ("memory-clock", "clock_memory_hertz", 1e6),
                ("performance-state", "performance_state", 1),
                ("pcie", "pcie_generation", 1),
            )
        },
        "util-history": Cells(_history, heading=_history_heading("Last")),
        "memory-history": Cells(_memory_history, heading=_history_heading("Memory")),
        # Free GPUs first, then by user and program.
        "owner": Cells(_owner, lambda row: "" if row.owner.is_free else f"{row.owner.user} {row.owner.program}"),
    },
)
"""Columns of the overview, those that fit."""
