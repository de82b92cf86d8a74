"""The chart of the selected GPU on the overview, with its heading and the values next to it."""

from typing import Final

from textual.app import ComposeResult
from textual.containers import Horizontal

from gpumon.operations.gpu_processes import largest_allocator
from gpumon.present.device_table import DeviceRow, notable_state
from gpumon.present.overview_chart import ChartSection, chart_section
from gpumon.session.view_state import ViewState
from gpumon.ui.widgets.text_lines import TextLines

SLOW_SECONDS: Final = 2.0
"""All but the GPUs is drawn at this pace: the totals, the chart and the values next to it, and the processes."""


class GpuChart:
    """Three widgets of a screen, drawn again at another pace than its tables."""

    def __init__(self) -> None:
        self._heading = TextLines(id="chart-heading")
        self._chart = TextLines(id="chart")
        self._panel = TextLines(id="panel")
        self._drawn: tuple[tuple[object, ...], ChartSection] | None = None
        """What is shown, and what it was drawn for."""

    def compose(self) -> ComposeResult:
        """The widgets, below each other."""
        yield self._heading
        with Horizontal(id="chart-section"):
            yield self._chart
            yield self._panel

    def show(self, state: ViewState, selected: DeviceRow | None, width: int, height: int) -> None:
        """Draw a GPU; nothing without one, or without room."""
        section = None if not height or selected is None else self._section(state, selected, width, height)
        self._heading.show([] if section is None else [section.heading])
        self._chart.show([] if section is None else section.chart)
        self._panel.show([] if section is None else section.panel)

    def _section(self, state: ViewState, selected: DeviceRow, width: int, height: int) -> ChartSection:
        device, moment = selected.device, state.frame.monotonic_seconds // SLOW_SECONDS
        drawn_for = (device.key, notable_state(selected), width, height, moment)
        if self._drawn is None or self._drawn[0] != drawn_for:
            torch = largest_allocator(device, state.probes.probes)
            self._drawn = drawn_for, chart_section(selected, state.store, width, height, torch)
        return self._drawn[1]
