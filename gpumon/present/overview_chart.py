"""The chart of the selected GPU on the overview, and the values next to it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.core.metrics import METRICS
from gpumon.core.model import Device, DeviceState
from gpumon.core.problems import ProblemCode
from gpumon.core.store import BUCKET_SECONDS, Store
from gpumon.core.units import (
    MISSING,
    age_text,
    compact_gibibytes_text,
    compact_rate_text,
    gibibytes_text,
    megahertz_text,
    number_text,
    percent_text,
)
from gpumon.present.device_table import DeviceRow, short_name, state_span, throttle_text
from gpumon.present.limits import limit_of, limited_text
from gpumon.present.metric_style import missing_text
from gpumon.present.overview_plan import MIN_PANEL_WIDTH
from gpumon.present.overview_table import ALERTS_HINT
from gpumon.present.paint.area import Form, PlotSeries, area_chart, with_scale
from gpumon.present.paint.bar import fine_bar
from gpumon.present.paint.line import Line, Role, Span, cut, line, plain, width_of
from gpumon.present.time_axis import TimeWindow, axis_text, column_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.core.allocator import AllocatorStatistics

PANEL_WIDTH: Final = 42
"""Cells of the values next to the chart, with the gap before them."""
_GUTTER: Final = 6
_PERCENT: Final = 100.0
_PANEL_GAP: Final = 2
_LOAD_STEPS: Final = (Role.LOAD_LOW, Role.LOAD_MEDIUM, Role.LOAD_HIGH)
"""Colors of the utilization by its height."""
MIN_AXIS_SECONDS: Final = 60.0
_MIN_FILLED_SHARE: Final = 2 / 3
_STRIP_SHARE: Final = 4
_MIN_STRIP_ROWS: Final = 2
_MIN_HEIGHT_FOR_STRIP: Final = 6
"""The memory has its own strip, a quarter of the rows, in a chart that is not lower."""
_ACTIVITY: Final = (
    ("SM", "sm_activity_percent"),
    ("tensor", "tensor_activity_percent"),
    ("DRAM", "dram_activity_percent"),
    ("occ", "sm_occupancy_percent"),
)
_MIN_SMALL_HEIGHT: Final = 5
"""Lines of a small chart with a blank line and its heading."""
_MIN_GAUGE_HEIGHT: Final = 9
"""A lower panel has the activity in two lines, without bars."""


class ChartAxis(NamedTuple):
    """The time axis of the chart.

    Attributes:
        columns: Number of columns.
        bucket_seconds: Time of which a value is the mean.
        cells: Columns of a value.
    """

    columns: int
    bucket_seconds: float
    cells: int

    @property
    def seconds(self) -> float:
        """The time that the chart spans."""
        return self.columns / self.cells * self.bucket_seconds


class ChartSection(NamedTuple):
    """The chart of the selected device.

    Attributes:
        heading: The line above it.
        chart: The chart with its scale, and the time axis; the same object while nothing has changed.
        panel: The values next to it; empty where there is no room.
    """

    heading: Line
    chart: Sequence[Line]
    panel: Sequence[Line]


def chart_section(
    row: DeviceRow, store: Store, width: int, height: int, torch: AllocatorStatistics | None
) -> ChartSection:
    """The chart of a device with its heading and axis, and its values at the right where there is room.

    Args:
        row: The device.
        store: The history.
        width: Cells of a line.
        height: Rows of the chart, without heading and axis.
        torch: What PyTorch holds on the device, by the probes, or None.
    """
    has_panel = width >= MIN_PANEL_WIDTH
    axis = chart_axis(row, store, max(1, width - _GUTTER - (PANEL_WIDTH if has_panel else 0) - 1))
    chart = [*_plot(row, store, axis, height), _axis(store, axis)]
    if not has_panel:
        return ChartSection(_heading(row, axis, width), chart, ())
    room = PANEL_WIDTH - _PANEL_GAP - 1  # the last cell of the screen stays free
    panel = panel_lines(row, room, height + 1, torch)
    panel += _small_charts(row, room, height + 1 - len(panel))
    return ChartSection(_heading(row, axis, width), chart, panel)


def chart_axis(row: DeviceRow, store: Store, columns: int) -> ChartAxis:
    """The longest axis of which the history fills two thirds, or else the shortest one, of about a minute."""
    history, frame = store.of_device(row.device.key), store.frame
    known, interval = 0.0, 0.0
    if history is not None and frame is not None and history.timeline.first_seconds is not None:
        known = frame.monotonic_seconds - history.timeline.first_seconds
        interval = max(frame.interval_seconds, frame.sweep.seconds or 0.0)
    cells = max(1, round(columns / MIN_AXIS_SECONDS))
    axes = [ChartAxis(columns, 1.0, number) for number in range(cells, 0, -1)]
    axes += [ChartAxis(columns, seconds, 1) for seconds in (2.0, 3.0, BUCKET_SECONDS)]
    possible = [axis for axis in axes if axis.bucket_seconds >= interval] or axes[-1:]
    return next((axis for axis in reversed(possible) if known >= _MIN_FILLED_SHARE * axis.seconds), possible[0])


def _heading(row: DeviceRow, axis: ChartAxis, width: int) -> Line:
    """A rule with the name of the GPU, the colors of the chart, and the time that the chart spans."""
    device = row.device
    parts = line(
        Span("── ", Role.GRID),
        Span(f"GPU {device.label}", Role.ACCENT),
        f"  {short_name(device)}  ",
        *(Span("■", role) for role in _LOAD_STEPS),
        Span(" utilization  ", Role.DIM),
        Span("━ ", Role.MEMORY_HISTORY),
        Span(f"memory {gibibytes_text(device.get('memory_used_bytes'))} GiB ", Role.DIM),
    )
    span = f" {age_text(axis.seconds)} "
    rule = width - width_of(plain(parts)) - width_of(span) - 3
    if rule < 1:
        return cut(parts, width)
    return line(*parts, Span("─" * rule, Role.GRID), Span(span, Role.DIM), Span("──", Role.GRID))


def _plot(row: DeviceRow, store: Store, axis: ChartAxis, height: int) -> Sequence[Line]:
    """The chart of the completed buckets; the newest one still changes, and would cost bytes with every frame."""
    device, key = row.device, row.device.key
    total = device.get("memory_total_bytes") or 0.0
    strip = max(_MIN_STRIP_ROWS, height // _STRIP_SHARE) if total and height >= _MIN_HEIGHT_FOR_STRIP else 0
    utilization = _columns(store, key, "utilization_gpu_percent", axis)
    used = _columns(store, key, "memory_used_bytes", axis) if strip else ()
    lines = [*_drawn_steps(utilization, axis.columns, height - strip)]
    return [*lines, *_drawn_strip(used, total, axis.columns, strip)] if strip else lines


def _columns(store: Store, key: str, metric: str, axis: ChartAxis) -> tuple[float | None, ...]:
    """The value of each column of the chart."""
    count = -(-axis.columns // axis.cells)
    values = store.history(key, metric, count + 1, axis.bucket_seconds)[:-1]
    return tuple(value for value in values for _ in range(axis.cells))[-axis.columns :]


@lru_cache(maxsize=4)
def _drawn_steps(values: tuple[float | None, ...], columns: int, height: int) -> Sequence[Line]:
    series = PlotSeries(values, Role.GPU_HISTORY, steps=_LOAD_STEPS)
    return with_scale(area_chart([series], _PERCENT, columns, height), "100%", "50%", _GUTTER)


@lru_cache(maxsize=4)
def _drawn_strip(values: tuple[float | None, ...], total: float, columns: int, height: int) -> Sequence[Line]:
    """The memory: a line, so that a full GPU is no solid block."""
    drawn = area_chart([PlotSeries(values, Role.MEMORY_HISTORY, Form.LINE)], total, columns, height)
    return with_scale(drawn, f"{compact_gibibytes_text(total)}G", "", _GUTTER)


def _axis(store: Store, axis: ChartAxis) -> Line:
    now = 0.0 if store.frame is None else store.frame.monotonic_seconds
    seconds = axis.bucket_seconds / axis.cells
    window = TimeWindow(column_of(now, seconds), axis.columns, seconds)
    return (Span(f"{'└':>{_GUTTER}}{axis_text(window, now)}", Role.DIM),)


def _small_charts(row: DeviceRow, width: int, height: int) -> list[Line]:
    """Charts of more metrics below the values, as many as there is room for; each up to the limit of its metric."""
    device = row.device
    shown = [
        (metric, limit, role)
        for metric, role in (
            ("power_watts", Role.POWER),
            ("temperature_celsius", Role.TEMPERATURE),
            ("clock_sm_hertz", Role.CLOCK),
        )
        if device.state is DeviceState.OK and device.get(metric) is not None and (limit := limit_of(metric, device))
    ][: height // _MIN_SMALL_HEIGHT]
    lines: list[Line] = []
    for number, (metric, limit, role) in enumerate(shown):
        rows = (height - len(lines)) // (len(shown) - number) - 2
        label = METRICS[metric].label
        values = tuple(row.history(metric, width + 1)[:-1])
        lines.append(())
        lines.append(line(Span("━ ", role), Span(f"{label} ", Role.DIM), limited_text(metric, device)))
        lines += _drawn_small(values, limit, width, rows, role)
    return lines


@lru_cache(maxsize=2 * len(Role))
def _drawn_small(values: tuple[float | None, ...], top: float, width: int, height: int, role: Role) -> Sequence[Line]:
    return area_chart([PlotSeries(values, role, Form.LINE)], top, width, height)


def panel_lines(row: DeviceRow, width: int, height: int, torch: AllocatorStatistics | None) -> list[Line]:
    """The values of a GPU that the table has no room for, the most important ones first.

    Args:
        row: The device.
        width: Cells of a line.
        height: Maximum number of lines.
        torch: What PyTorch holds on the device, or None without a probe.
    """
    device = row.device
    if device.state is not DeviceState.OK:
        problem = device.problems.get("state")
        reason = () if problem is None else (problem.reason, problem.remedy)
        texts = [plain((state_span(row),)), *filter(None, reason), ALERTS_HINT]
        return [cut((Span(text, Role.ERROR if not number else Role.DIM),), width) for number, text in enumerate(texts)]
    lines = _activity(device, width, has_bars=height >= _MIN_GAUGE_HEIGHT)
    lines += [_link(device, label, name) for label, name in (("NVLink", "nvlink"), ("PCIe", "pcie"))]
    lines.append(_clock(row))
    if torch is not None:
        lines.append(_torch(torch))
    lines.append(_health(device))
    return [cut(one, width) for one in lines[:height]]


def _activity(device: Device, width: int, *, has_bars: bool) -> list[Line]:
    if all(device.get(metric) is None for _, metric in _ACTIVITY):
        problem = device.problems.get(_ACTIVITY[0][1])
        lines = [line(Span("SM, tensor, DRAM activity ", Role.DIM), MISSING)]
        if problem is not None and problem.code is not ProblemCode.NOT_READ:  # gpumon reads it in a moment
            lines.append(cut((Span(problem.reason, Role.DIM),), width))
        return lines
    if not has_bars:
        pairs = [f"{label} {_percent_text(device, metric)}" for label, metric in _ACTIVITY]
        return [line("  ".join(pairs))]
    lines = []
    for label, metric in _ACTIVITY:
        value = device.get(metric)
        bar = fine_bar(None if value is None else value / 100, width - 8 - 5, Role.ACTIVITY)
        lines.append(line(Span(f"{label:<8}", Role.DIM), *bar, f"{_percent_text(device, metric):>5}"))
    return lines


def _percent_text(device: Device, metric: str) -> str:
    value = device.get(metric)
    return missing_text(device, metric) if value is None else percent_text(value)


def _link(device: Device, label: str, name: str) -> Line:
    received = device.get(f"{name}_receive_bytes_per_second")
    sent = device.get(f"{name}_transmit_bytes_per_second")
    parts = line(
        Span(f"{label:<8}", Role.DIM),
        Span("↓", Role.LINK),
        f"{compact_rate_text(received):<5} ",
        Span("↑", Role.LINK),
        f"{compact_rate_text(sent):<5}B/s",
    )
    if name == "nvlink":
        links = device.get("nvlink_links_count")
        return line(*parts, Span("" if links is None else f" {links:.0f} links", Role.DIM))
    generation, lanes = device.get("pcie_generation"), device.get("pcie_width")
    known = generation is not None and lanes is not None
    return line(*parts, Span(f" gen {generation:.0f} x{lanes:.0f}" if known else "", Role.DIM))


def _clock(row: DeviceRow) -> Line:
    device = row.device
    now, top = device.get("clock_sm_hertz"), device.get("clock_sm_max_hertz")
    clock = f"{megahertz_text(now)}/{megahertz_text(top)} MHz"
    text, is_fault = throttle_text(device.throttle_reasons or ())
    return line(
        Span(f"{'clock':<8}", Role.DIM),
        clock,
        Span(f"  {'!' if is_fault else ''}{text}".rstrip(), Role.WARNING if is_fault else Role.DIM),
    )


def _torch(statistics: AllocatorStatistics) -> Line:
    return line(
        Span(f"{'torch':<8}", Role.DIM),
        f"{gibibytes_text(statistics.allocated_bytes)} of {gibibytes_text(statistics.reserved_bytes)} GiB",
        Span(" reserved", Role.DIM),
    )


def _health(device: Device) -> Line:
    """Uncorrected memory errors and remapped rows; marked where there are any."""
    errors = device.get("ecc_uncorrected_volatile_count")
    rows = [device.get(f"remapped_rows_{kind}_count") for kind in ("correctable", "uncorrectable")]
    remapped = None if None in rows else sum(value or 0 for value in rows)
    role = Role.WARNING if errors or remapped else Role.PLAIN
    mark = "!" if role is Role.WARNING else ""
    return line(
        Span(f"{'ECC':<8}", Role.DIM),
        Span(f"{mark}{number_text(errors)}", role),
        Span("  rows remapped ", Role.DIM),
        Span(number_text(remapped), role),
    )
