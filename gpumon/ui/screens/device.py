"""One GPU: charts of the chosen metrics on one time axis, throttling and events below them, and every value."""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import ClassVar, Final

from textual.app import ComposeResult

from gpumon.core.model import Device
from gpumon.core.store import DeviceHistory
from gpumon.operations.csv_table import TimeRange, history_table, save
from gpumon.present.chart_lines import axis_line, chart_lines, labels_width
from gpumon.present.device import (
    DEFAULT_METRICS,
    ChartPlan,
    event_lines,
    heading_line,
    history_entries,
    plan_charts,
    throttle_lines,
    title_text,
    tracks_of,
)
from gpumon.present.entries import device_entries
from gpumon.present.header import banner
from gpumon.present.metric_chart import MetricChart, Track
from gpumon.present.paint.area import GUTTER
from gpumon.present.paint.line import Line
from gpumon.present.time_axis import TimeWindow
from gpumon.present.time_view import moment_text
from gpumon.session.app_session import Demand
from gpumon.session.view_state import ViewState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import ViewStateRequested
from gpumon.ui.screens.chart_choices import metric_choices, overlay_choices
from gpumon.ui.screens.entries import EntriesScreen
from gpumon.ui.screens.time_screen import TimeScreen
from gpumon.ui.widgets.text_lines import TextLines

_MAX_BANNER_LINES: Final = 2
_MIN_HEIGHT_FOR_BANNER: Final = 16


class DeviceScreen(TimeScreen[None], EntriesScreen[None]):
    """A device.

    Args:
        key: The device's key.
        metrics: The charts to begin with; empty for the usual ones.
    """

    PAGE: ClassVar[str] = "docs/device.md"
    TAB: ClassVar[str] = "GPUs"
    SELECTS_DEVICE: ClassVar[bool] = True
    AUTO_FOCUS: ClassVar[str] = "#details"
    CHARTS_ID: ClassVar[str] = "charts"
    LEGEND: ClassVar[str] = """\
A GPU OVER TIME
  power cap ...  when the clocks were lowered, and why; below it events:
                 ┆ a workload of gpumon, ! the GPU or an alert, X an Xid
                 error, x the driver
"""
    BINDINGS: ClassVar[Bindings] = [
        key("device.choose", "Metrics", "Choose the charts"),
        key("device.overlay", "Overlay", "Draw several GPUs in the same charts"),
        key("device.save", "Save", "Save the values of the charts as a CSV file"),
    ]

    def __init__(self, key: str, metrics: Sequence[str] = ()) -> None:
        super().__init__(key)
        self.charts: list[MetricChart] = [MetricChart(metric) for metric in metrics or DEFAULT_METRICS]
        """The chosen charts, including those without room."""
        self._overlay: tuple[str, ...] = ()
        """Keys of the GPUs that are drawn in the same charts; empty for this GPU alone."""

    @property
    def demand(self) -> Demand:
        """Values that are expensive to read are read only for a device that a screen shows."""
        return Demand(device_keys=frozenset({self.key}))

    def compose_above(self) -> ComposeResult:
        yield TextLines(id="banner")
        yield TextLines(id="charts")
        yield TextLines(id="values-heading")

    def show(self, state: ViewState) -> None:
        """Draw the device; once it is gone, its last values."""
        device = state.frame.device(self.key)
        gone = "  is gone; last values" if device is None else ""
        self._device = device = device or self._device
        self._state = state
        if device is None:
            self.show_title("This GPU is gone")
            return
        self.show_title(f"{title_text(device, state.frame)}{gone}")
        self._lines("banner").show(self._banner(state))
        self._show_history(state, device)

    def _show_history(self, state: ViewState, device: Device) -> None:
        """Show the charts, the lines aligned with them, and the table."""
        history = state.store.of_device(self.key)
        plan = plan_charts(self.size.width, self.size.height - 1, len(self.charts))
        tracks = self._tracks(state, device)
        window = self._window(state, history, tracks)
        lines = self._chart_lines(state, history, tracks, window, plan) if plan.charts else []
        self._lines("charts").show(lines)
        heading = heading_line(plan.charts, len(self.charts), self.size.width)
        self._lines("values-heading").show([heading] if plan.reasons else [])
        more = () if history is None else history_entries(history, window, state.frame.monotonic_seconds)
        self.show_entries(chain(device_entries(device), more))

    def _tracks(self, state: ViewState, device: Device) -> list[Track]:
        overlay = [shown for shown in state.frame.devices if shown.key in self._overlay]
        return tracks_of(device, overlay, state.store)

    def _chart_lines(
        self, state: ViewState, history: DeviceHistory | None, tracks: list[Track], window: TimeWindow, plan: ChartPlan
    ) -> list[Line]:
        lines: list[Line] = []
        cursor = self.time_view.cursor_index
        for chart in self.charts[: plan.charts]:
            chart.draw(tracks, window, plan.height, state.frame.interval_seconds, cursor)
            lines += chart_lines(chart, tracks, self.size.width, cursor)
        moment = ""
        if self.time_view.cursor is not None:
            moment = moment_text(self.time_view.cursor * window.column_seconds, state.frame)
        lines.append(axis_line(window, state.frame.monotonic_seconds, cursor, moment))
        if history is not None and plan.reasons:
            lines += throttle_lines(history, window, plan.reasons)
            lines += event_lines(history, window, cursor)
        return lines

    def _window(self, state: ViewState, history: DeviceHistory | None, tracks: list[Track]) -> TimeWindow:
        """The visible part of the history, without what the history has dropped in the meantime."""
        columns = max(1, self.size.width - GUTTER - labels_width(tracks))
        first = None if history is None else history.timeline.first_seconds
        return self.time_view.window(state.frame.monotonic_seconds, first, columns, state.store.history_seconds)

    def _banner(self, state: ViewState) -> list[Line]:
        """Alerts of this GPU, and those that are not about other GPUs or a job on them."""
        if self.size.height < _MIN_HEIGHT_FOR_BANNER:
            return []
        label = None if self._device is None else self._device.label
        gpus_of_jobs = {job.title: {gpu.label for gpu in job.gpus} for job in state.jobs.reports}
        elsewhere = {title for title, labels in gpus_of_jobs.items() if labels and label not in labels}
        alerts = [
            alert
            for alert in state.alerts
            if alert.device_key == self.key or (alert.device_key is None and alert.subject not in elsewhere)
        ]
        return banner(alerts, self.size.width, _MAX_BANNER_LINES, state.frame.time_seconds)

    def action_save(self) -> None:
        """Save in the background: the current folder may be on a server that does not answer."""
        history = None if self._state is None else self._state.store.of_device(self.key)
        if self._state is None or self._device is None or history is None:
            return
        window = self._window(self._state, history, self._tracks(self._state, self._device))
        metrics = [chart.metric for chart in self.charts]
        time_range = TimeRange(window.first, window.last, window.column_seconds)
        table = history_table(history.timeline, metrics, self._device, self._state.frame, time_range)
        name = f"gpumon-gpu{self._device.index}"
        self.attempt(partial(save, table, name), self.report_saved)

    def action_choose(self) -> None:
        metrics = [chart.metric for chart in self.charts]
        self.app.push_screen(metric_choices(self._device, metrics), self._choose_charts)

    def _choose_charts(self, metrics: tuple[str, ...] | None) -> None:
        """Show the chosen charts; one that stays keeps what it has drawn."""
        if metrics:
            charts = {chart.metric: chart for chart in self.charts}
            self.charts = [charts.get(metric) or MetricChart(metric) for metric in metrics]
            self.post_message(ViewStateRequested())

    def action_overlay(self) -> None:
        chosen = self._overlay or (self.key,)
        devices = () if self._state is None else self._state.frame.devices
        self.app.push_screen(overlay_choices(devices, chosen), self._choose_overlay)

    def _choose_overlay(self, keys: tuple[str, ...] | None) -> None:
        """Draw the chosen GPUs; fewer than two stand for the GPU of this screen alone."""
        self._overlay = keys if keys is not None and len(keys) > 1 else ()
        self.post_message(ViewStateRequested())
