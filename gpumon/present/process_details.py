"""The screen of one process as lines: charts of its recent values, and what /proc shows of it as entries."""

import time
from collections.abc import Iterator, Sequence
from itertools import chain
from math import ceil
from typing import Final, NamedTuple

from gpumon.core.model import Device
from gpumon.core.problems import Problem
from gpumon.core.units import MISSING, bytes_text, number_text
from gpumon.operations.process_details import ProcessDetails, cuda_numbering
from gpumon.operations.process_origin import ProcessOrigin
from gpumon.present.entries import Entry
from gpumon.present.paint.area import PlotSeries, area_chart, with_scale
from gpumon.present.paint.line import Line, Role, Span, cut, plain, width_of
from gpumon.session.process_registry import POINT_SECONDS, ProcessHistory

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
    top_text: str
    newest_text: str
    role: Role


def chart_lines(history: ProcessHistory | None, device: Device, width: int, height: int) -> list[Line]:
    """Charts of GPU memory, SM, CPU and host memory; empty if there is no room for them.

    Args:
        history: The recent values, or None if none are known.
        device: The device that the process uses.
        width: Cells of a line.
        height: Lines of the screen.
    """
    if history is None:
        return []
    charts = _charts(history, device)
    columns = 2 if width >= _MIN_TWO_COLUMNS else 1
    rows = min(_MAX_ROWS, int(height * _CHART_SHARE) // (len(charts) // columns) - 1)
    if rows < _MIN_ROWS:
        return []
    chart_width = (width - 1) // columns
    blocks = [_chart_block(chart, chart_width, rows) for chart in charts]
    lines: list[Line] = []
    for first in range(0, len(blocks), columns):
        for parts in zip(*blocks[first : first + columns], strict=True):
            lines.append(tuple(chain.from_iterable(_padded(part, chart_width) for part in parts)))
    return lines


def _charts(history: ProcessHistory, device: Device) -> list[_Chart]:
    series = history.series
    total = device.get("memory_total_bytes") or _largest(series.memory_bytes)
    cpu_top = 100.0 * max(1, ceil(_largest(series.cpu_percent) / 100))
    host_top = 1.25 * _largest(series.host_memory_bytes) or 1.0
    return [
        _Chart(
            "GPU memory",
            series.memory_bytes,
            total or 1.0,
            bytes_text(total),
            bytes_text(_newest(series.memory_bytes)),
            Role.MEMORY_HISTORY,
        ),
        _Chart("SM", series.sm_percent, 100.0, "100 %", _percent_text(series.sm_percent), Role.ACTIVITY),
        _Chart(
            "Host CPU",
            series.cpu_percent,
            cpu_top,
            f"{cpu_top:.0f} %",
            _percent_text(series.cpu_percent),
            Role.SERIES_1,
        ),
        _Chart(
            "Host memory",
            series.host_memory_bytes,
            host_top,
            bytes_text(host_top),
            bytes_text(_newest(series.host_memory_bytes)),
            Role.SERIES_2,
        ),
    ]


def _chart_block(chart: _Chart, width: int, rows: int) -> list[Line]:
    """A heading and a chart."""
    columns = width - _SCALE_WIDTH - 1
    newest = chart.values[-columns:]
    values = (*[None] * (columns - len(newest)), *newest)
    minutes = columns * POINT_SECONDS / 60
    heading = (
        Span(" ■ ", chart.role),
        Span(f"{chart.label} "),
        Span(chart.newest_text, Role.ACCENT),
        Span(f"  last {minutes:.0f} min", Role.DIM),
    )
    plot = area_chart([PlotSeries(values, chart.role)], chart.top, columns, rows)
    return [heading, *with_scale(plot, chart.top_text, width=_SCALE_WIDTH)]


def _padded(line: Line, width: int) -> Line:
    fitted = cut(line, width)
    return (*fitted, Span(" " * (width - width_of(plain(fitted)))))


def _largest(values: Sequence[float | None]) -> float:
    return max((value for value in values if value is not None), default=0.0)


def _newest(values: Sequence[float | None]) -> float | None:
    return values[-1] if values else None


def _percent_text(values: Sequence[float | None]) -> str:
    newest = _newest(values)
    return MISSING if newest is None else f"{number_text(newest)} %"


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


def started_entry(started_seconds: float) -> Entry:
    """When a process started, in local time."""
    return "Started", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(started_seconds)), ""


def _reason(details: ProcessDetails, field: str) -> str:
    problem: Problem | None = details.problems.get(field)
    return "" if problem is None else str(problem)
