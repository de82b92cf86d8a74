"""How the parts of the overview share a screen: totals, devices, the chart of the selected GPU, and processes."""

from typing import Final, NamedTuple

HEAT_MAP_FROM: Final = 17
"""Number of devices from which on they are shown as a heat map."""
MIN_PANEL_WIDTH: Final = 100
"""A narrower screen has no room for values next to the chart."""

_FRAME_LINES: Final = 2
"""The top line and the footer."""
_MIN_HEIGHT_FOR_TOTALS: Final = 14
_MIN_HEIGHT_FOR_HOST: Final = 20
"""Lower screens show what to know now in place of the host."""
_MIN_HEIGHT_FOR_SCOPE: Final = 13
"""Lower screens have no heading above the process table."""
_CHART_FRAME_LINES: Final = 2
"""The heading of the chart and its time axis."""
_MIN_CHART_ROWS: Final = 3
_MIN_PROCESS_ROWS: Final = 3
_MAX_PROCESS_SHARE: Final = 0.45
"""Of the lines below the devices, when the processes want more."""
_MAX_DEVICE_SHARE: Final = 0.6
_FEW_GPUS: Final = 2
"""Up to this number, the chart takes half of the screen."""


class OverviewPlan(NamedTuple):
    """Lines of each part.

    Attributes:
        totals: Lines of sums, of the host, and of what to know now.
        devices: Rows of the device table or of the heat map, without the heading.
        chart: Rows of the chart, without heading and axis; 0 for no chart.
        has_scope: Whether the process table has a heading that names its GPU.
        processes: Rows of the process table.
    """

    totals: int
    devices: int
    chart: int
    has_scope: bool
    processes: int


def plan_overview(height: int, devices: int, processes: int, banner: int, *, gpus: int = 0) -> OverviewPlan:
    """Share the lines of a screen. The devices come first, then some processes, then the chart.

    Args:
        height: Lines of the screen.
        devices: Rows that the devices want.
        processes: Rows that the processes want.
        banner: Lines of the banner.
        gpus: Number of GPUs; 0 if there are many.
    """
    totals = 1 + (height >= _MIN_HEIGHT_FOR_TOTALS) + (height >= _MIN_HEIGHT_FOR_HOST)
    has_scope = height >= _MIN_HEIGHT_FOR_SCOPE
    frame = _FRAME_LINES + banner + totals + 1 + has_scope + 1  # with the headings of both tables
    room = max(2, height - frame)
    min_processes = max(1, min(processes, _MIN_PROCESS_ROWS, room // 3))
    device_rows = max(1, min(devices, room - min_processes))
    if devices > device_rows:
        wanted = max(1, min(processes, int(room * (1 - _MAX_DEVICE_SHARE))))
        device_rows = max(1, min(devices, room - max(min_processes, wanted)))
    below = room - device_rows
    process_rows = max(min_processes, min(processes, int(below * _MAX_PROCESS_SHARE)))
    if 0 < gpus <= _FEW_GPUS:
        half = height // 2
        process_rows = max(min_processes, min(processes, below - half))
    chart = below - process_rows - _CHART_FRAME_LINES
    if chart < _MIN_CHART_ROWS:
        return OverviewPlan(totals, device_rows, 0, has_scope, below)
    return OverviewPlan(totals, device_rows, chart, has_scope, process_rows)
