"""The screen of one process as lines: charts of its recent values, and what /proc shows of it as entries."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from math import ceil, floor
from typing import Final, NamedTuple

from gpumon.core.model import Device
from gpumon.core.problems import Problem
from gpumon.core.steps import StepProgress
from gpumon.core.units import MISSING, bytes_text, duration_text, local_time_text, short_time_text, spaced_percent_text
from gpumon.operations.process_details import ProcessDetails, ProcessOrigin, cuda_numbering
from gpumon.present.entries import Entry
from gpumon.present.paint.area import PlotSeries, area_chart, with_scale
from gpumon.present.paint.line import Line, Role, Span, cut, plain, width_of
from gpumon.present.time_axis import TimeWindow
from gpumon.session.process_registry import POINT_SECONDS, ProcessHistory, ProcessSeries

_MIN_ROWS: Final = 3
"""Rows of a chart; without room for that many, there are no charts."""
_MAX_ROWS: Final = 8
_SCALE_WIDTH: Final = 10
_MIN_TWO_COLUMNS: Final = 72
_CHART_SHARE: Final = 0.45
_STATES: Final = {
    "R": "running",
    "S": "sleeping",
    "D": "blocked in the kernel",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "Z": "zombie: ended, and not collected by its parent",
    "I": "idle",
}
_BLOCKED_NOTE: Final = (
    "An uninterruptible system call, usually in the driver or on a disk: no signal can end it before that call returns."
)


class _Chart(NamedTuple):
    label: str
    values: Sequence[float | None]
    top: float
    text: Callable[[float | None], str]
    role: Role


class ChartGrid(NamedTuple):
    """How the charts of a process are arranged.

    Attributes:
        across: Charts next to each other.
        width: Cells of a chart, its scale included.
        rows: Lines of a chart without its heading; 0 if there is no room for charts.
    """

    across: int
    width: int
    rows: int

    @property
    def columns(self) -> int:
        """Columns of time of each chart."""
        return max(1, self.width - _SCALE_WIDTH - 1)

    def column_at(self, x: int) -> int | None:
        """The column of time at a cell of a line; None outside of the charts."""
        column = x % self.width - _SCALE_WIDTH
        return column if 0 <= column < self.columns and x < self.width * self.across else None


def chart_grid(width: int, height: int) -> ChartGrid:
    """The arrangement of the charts."""
    across = 2 if width >= _MIN_TWO_COLUMNS else 1
    rows = min(_MAX_ROWS, int(height * _CHART_SHARE) // (len(ProcessSeries._fields) // across) - 1)
    return ChartGrid(across, (width - 1) // across, rows if rows >= _MIN_ROWS else 0)


def chart_lines(
    history: ProcessHistory,
    device: Device,
    grid: ChartGrid,
    window: TimeWindow,
    *,
    cursor: int | None = None,
    moment: str = "",
) -> list[Line]:
    """Charts of GPU memory, SM, CPU and host memory.

    Args:
        history: The recent values.
        device: The device that the process uses.
        grid: Their arrangement; with room for them.
        window: The time shown.
        cursor: Index of the column under the cursor, or None.
        moment: The time at the cursor.
    """
    blocks = [
        _chart_block(chart, history.last_point, grid, window, cursor=cursor, moment=moment)
        for chart in _charts(history, device)
    ]
    lines: list[Line] = []
    for first in range(0, len(blocks), grid.across):
        for parts in zip(*blocks[first : first + grid.across], strict=True):
            lines.append(tuple(chain.from_iterable(_padded(part, grid.width) for part in parts)))
    return lines


def _charts(history: ProcessHistory, device: Device) -> list[_Chart]:
    series = history.series
    total = device.get("memory_total_bytes") or _largest(series.memory_bytes)
    cpu_top = 100.0 * max(1, ceil(_largest(series.cpu_percent) / 100))
    host_top = 1.25 * _largest(series.host_memory_bytes) or 1.0
    return [
        _Chart("GPU memory", series.memory_bytes, total or 1.0, bytes_text, Role.MEMORY_HISTORY),
        _Chart("SM", series.sm_percent, 100.0, spaced_percent_text, Role.ACTIVITY),
        _Chart("Host CPU", series.cpu_percent, cpu_top, spaced_percent_text, Role.SERIES_1),
        _Chart("Host memory", series.host_memory_bytes, host_top, bytes_text, Role.SERIES_2),
    ]


def _chart_block(
    chart: _Chart, last_point: int, grid: ChartGrid, window: TimeWindow, *, cursor: int | None, moment: str
) -> list[Line]:
    """A heading with the value now or at the cursor, and a chart."""
    columns = columns_of(chart.values, last_point, window)
    has_cursor = cursor is not None and 0 <= cursor < len(columns)
    newest = chart.values[-1] if chart.values else None
    value = columns[cursor] if cursor is not None and has_cursor else newest
    when = moment if has_cursor else f"last {duration_text(window.width * window.column_seconds)}"
    heading = (
        Span(" ■ ", chart.role),
        Span(f"{chart.label} "),
        Span(chart.text(value), Role.ACCENT),
        Span(f"  {when}", Role.DIM),
    )
    plot = area_chart([PlotSeries(columns, chart.role)], chart.top, window.width, grid.rows, cursor=cursor)
    return [heading, *with_scale(plot, chart.text(chart.top), width=_SCALE_WIDTH)]


def columns_of(values: Sequence[float | None], last_point: int, window: TimeWindow) -> list[float | None]:
    """The mean of the points in each column of time; a column shorter than a point has the value of that point.

    Args:
        values: The points, oldest first.
        last_point: Number of the newest one; point n was measured n times `POINT_SECONDS` after the start of the clock.
        window: The time shown.
    """
    first_point = last_point - len(values) + 1
    scale = window.column_seconds / POINT_SECONDS
    columns: list[float | None] = []
    for column in range(window.first, window.last + 1):
        begin = floor(column * scale)
        end = max(begin + 1, floor((column + 1) * scale))
        points = values[max(0, begin - first_point) : max(0, end - first_point)]
        known = [value for value in points if value is not None]
        columns.append(sum(known) / len(known) if known else None)
    return columns


def _padded(line: Line, width: int) -> Line:
    fitted = cut(line, width)
    return (*fitted, Span(" " * (width - width_of(plain(fitted)))))


def _largest(values: Sequence[float | None]) -> float:
    return max((value for value in values if value is not None), default=0.0)


def origin_entries(origin: ProcessOrigin) -> Iterator[Entry]:
    """What started a process."""
    note = "" if origin.problem is None else str(origin.problem)
    yield "Job", f"{origin.scheduler} {origin.job}" if origin.job else MISSING, "" if origin.job else note
    rank = MISSING if origin.rank is None else f"{origin.rank} of {origin.world_size}"
    local = "" if origin.local_rank is None else f", local rank {origin.local_rank}"
    yield "Rank", rank + local, note if origin.rank is None else ""
    if origin.pod:
        yield "Pod", origin.pod, ""
    if origin.container:
        yield "Container", origin.container, ""
    if origin.framework:
        yield "Framework", origin.framework, ""


def details_entries(details: ProcessDetails, origin: ProcessOrigin, devices: Sequence[Device]) -> Iterator[Entry]:
    """What /proc shows of a process, its own numbering of the devices, and the variables that concern GPUs and jobs."""
    state = details.state
    blocked = _BLOCKED_NOTE if state == "D" else _reason(details, "state")
    yield "State", MISSING if state is None else _STATES.get(state, state), blocked
    yield "Waits in", details.wait_channel or MISSING, _reason(details, "wait_channel") or "A function of the kernel."
    parent = MISSING if details.parent is None else f"{details.parent}  {origin.parent_command}".rstrip()
    yield "Parent", parent, _reason(details, "parent")
    yield "Threads", MISSING if details.threads is None else str(details.threads), _reason(details, "threads")
    yield "Folder", details.folder or MISSING, _reason(details, "folder")
    numbering = [f"cuda:{index} = GPU {device.label}" for index, device in cuda_numbering(details, devices)]
    yield "CUDA devices", ", ".join(numbering) or MISSING, _reason(details, "variables")
    files = details.device_files
    yield "Device files", MISSING if files is None else ", ".join(files) or "none", _reason(details, "device_files")
    if details.variables is None:
        yield "Environment", MISSING, _reason(details, "variables")
    for name, value in details.variables or ():
        yield name, value, ""


def training_entries(training: StepProgress) -> Iterator[Entry]:
    """The steps of the training run in a process, and what a step waits for."""
    yield "Steps", f"{training.steps_count:,}", "Steps of the optimizer since the probe has counted them."
    seconds = training.step_seconds
    if seconds:
        yield "Step time", short_time_text(seconds), f"{1 / seconds:.3g} steps per second; median of the latest steps."
        yield ("Waits for data", _part_text(training.data_seconds, seconds), "Time per step, for a DataLoader.")
        yield ("Collects garbage", _part_text(training.collection_seconds, seconds), "Time per step, by Python.")
    if training.waiting_for_data_since_monotonic is not None:
        yield "Now", "waits for data", ""


def _part_text(seconds: float | None, step_seconds: float) -> str:
    """A part of a step."""
    return MISSING if seconds is None else f"{short_time_text(seconds)}, {100 * seconds / step_seconds:.0f} %"


def started_entry(started_seconds: float) -> Entry:
    """When a process started, in local time."""
    return "Started", local_time_text(started_seconds), ""


def _reason(details: ProcessDetails, field: str) -> str:
    problem: Problem | None = details.problems.get(field)
    return "" if problem is None else str(problem)
