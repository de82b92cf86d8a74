"""One GPU: charts of the chosen metrics on one time axis, throttling and events below them, and every value."""

from itertools import chain
from pathlib import Path
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gpumon.core.model import Device
from gpumon.core.problems import CommandError
from gpumon.core.store import DeviceHistory
from gpumon.operations.save import Table, TimeRange, history_table, save
from gpumon.present.device import (
    DEFAULT_METRICS,
    GUTTER,
    ChartPlan,
    axis_line,
    chart_lines,
    event_lines,
    heading_line,
    history_entries,
    plan_charts,
    throttle_lines,
    title_text,
)
from gpumon.present.entries import device_entries
from gpumon.present.header import banner, title_line
from gpumon.present.metric_chart import MetricChart
from gpumon.present.paint.line import Line
from gpumon.present.time_axis import ZOOMS, TimeWindow, column_of, zooms_for
from gpumon.session.app_session import Demand
from gpumon.session.view_state import ViewState
from gpumon.ui.messages import ViewStateRequested
from gpumon.ui.screens.entries import EntriesScreen
from gpumon.ui.screens.metric_choice import MetricChoiceScreen
from gpumon.ui.widgets.text_lines import TextLines

DEFAULT_ZOOM: Final = ZOOMS.index(2.0)
_SCROLL_DIVISOR: Final = 4
"""One step scrolls by the width divided by this."""
_MAX_BANNER_LINES: Final = 2
_MIN_HEIGHT_FOR_BANNER: Final = 16


class DeviceScreen(EntriesScreen[None]):
    """A device.

    Args:
        key: The device's key.
    """

    AUTO_FOCUS: ClassVar[str] = "#details"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,h", "app.pop_screen", "Back", id="device.back", tooltip="Back to the overview"),
        Binding("m", "choose", "Metrics", id="device.metrics", tooltip="Choose the charts"),
        Binding("z", "zoom(-1)", "Zoom", id="device.zoom-in", key_display="z/x", tooltip="Zoom in: less time"),
        Binding("x", "zoom(1)", "Out", id="device.zoom-out", show=False, tooltip="Zoom out: more time"),
        Binding("left", "scroll(-1)", "Scroll", id="device.past", key_display="←/→", tooltip="Back in time"),
        Binding("right", "scroll(1)", "Forward", id="device.forward", show=False, tooltip="Forward in time"),
        Binding("n", "now", "Now", id="device.now", tooltip="Follow the newest values"),
        Binding("s", "save", "Save", id="device.save", tooltip="Save the values of the charts as a CSV file"),
    ]

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key
        self.charts: list[MetricChart] = [MetricChart(metric) for metric in DEFAULT_METRICS]
        """The chosen charts, including those without room."""
        self._zoom = DEFAULT_ZOOM
        self._zooms: tuple[float, ...] = ZOOMS
        self._last: int | None = None
        """The newest visible column; None follows the newest values."""
        self._latest = 0
        self._earliest = 0
        self._device: Device | None = None
        self._state: ViewState | None = None

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
        device = next((device for device in state.frame.devices if device.key == self.key), None)
        is_gone = device is None
        self._device = device = device or self._device
        self._state = state
        width = self.size.width
        with self.app.batch_update():
            if device is None:
                self.query_one("#title", TextLines).show([title_line("This GPU is gone", "", state, width)])
                return
            gone = "  is gone; last values" if is_gone else ""
            title = title_line(f"{title_text(device, state.frame)}{gone}", "", state, width)
            self.query_one("#title", TextLines).show([title])
            self.query_one("#banner", TextLines).show(self._banner(state))
            self._show_history(state, device)

    def _show_history(self, state: ViewState, device: Device) -> None:
        """Show the charts, the lines aligned with them, and the table."""
        history = state.store.of_device(self.key)
        now = state.frame.monotonic_seconds
        plan = plan_charts(self.size.width, self.size.height, len(self.charts))
        window = self._window(state, history)
        lines = self._chart_lines(state, device, history, window, plan) if plan.charts else []
        self.query_one("#charts", TextLines).show(lines)
        heading = heading_line(plan.charts, len(self.charts), self.size.width)
        self.query_one("#values-heading", TextLines).show([heading] if lines else [])
        more = () if history is None else history_entries(history, window, now)
        self.show_entries(chain(device_entries(device), more))

    def _chart_lines(
        self, state: ViewState, device: Device, history: DeviceHistory | None, window: TimeWindow, plan: ChartPlan
    ) -> list[Line]:
        lines: list[Line] = []
        for index, chart in enumerate(self.charts[: plan.charts]):
            timeline = None if history is None else history.timeline
            chart.draw(timeline, device, window, plan.height, state.frame.interval_seconds)
            lines += chart_lines(chart, index, device, self.size.width)
        lines.append(axis_line(window, state.frame.monotonic_seconds))
        if history is not None and plan.reasons:
            lines += throttle_lines(history, window, plan.reasons)
            lines += event_lines(history, window)
        return lines

    def _window(self, state: ViewState, history: DeviceHistory | None) -> TimeWindow:
        """The visible part of the history, without what the history has dropped in the meantime."""
        columns = max(1, self.size.width - GUTTER)
        self._zooms = zooms_for(state.store.history_seconds, columns)
        self._zoom = min(self._zoom, len(self._zooms) - 1)
        seconds = self._zooms[self._zoom]
        self._latest = column_of(state.frame.monotonic_seconds, seconds)
        first = None if history is None else history.timeline.first_seconds
        earliest = self._latest if first is None else column_of(first, seconds) + columns - 1
        self._earliest = min(earliest, self._latest)
        if self._last is not None:
            self._last = max(self._earliest, min(self._last, self._latest))
        return TimeWindow(self._latest if self._last is None else self._last, columns, seconds)

    def _banner(self, state: ViewState) -> list[Line]:
        """Alerts of this GPU, and those that are not about a single GPU."""
        if self.size.height < _MIN_HEIGHT_FOR_BANNER:
            return []
        alerts = [alert for alert in state.alerts if alert.device_key in {None, self.key}]
        return banner(alerts, self.size.width, _MAX_BANNER_LINES, state.frame.time_seconds)

    def action_zoom(self, steps: int) -> None:
        before = self._zooms[self._zoom]
        self._zoom = max(0, min(len(self._zooms) - 1, self._zoom + steps))
        if self._last is not None:  # the right edge stays where it is
            self._last = column_of(self._last * before, self._zooms[self._zoom])
        self.post_message(ViewStateRequested())

    def action_scroll(self, steps: int) -> None:
        step = max(1, (self.size.width - GUTTER) // _SCROLL_DIVISOR)
        last = (self._latest if self._last is None else self._last) + steps * step
        self._last = None if last >= self._latest else max(self._earliest, last)
        self.refresh_bindings()
        self.post_message(ViewStateRequested())

    def action_now(self) -> None:
        self._last = None
        self.refresh_bindings()
        self.post_message(ViewStateRequested())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the key that follows the newest values while they are visible."""
        return self._last is not None if action == "now" else super().check_action(action, parameters)

    def action_save(self) -> None:
        """Save in the background: the current folder may be on a server that does not answer."""
        history = None if self._state is None else self._state.store.of_device(self.key)
        if self._state is None or self._device is None or history is None:
            return
        window = self._window(self._state, history)
        metrics = [chart.metric for chart in self.charts]
        time_range = TimeRange(window.first, window.last, window.column_seconds)
        table = history_table(history.timeline, metrics, self._device, self._state.frame, time_range)
        name = f"gpumon-gpu{self._device.index}"
        self.in_background(lambda: _save(table, name), self._report_saved)

    def _report_saved(self, result: Path | CommandError) -> None:
        """Show where the file is, or why it could not be written."""
        if isinstance(result, CommandError):
            self.notify(str(result), severity="error", markup=False)
        else:
            self.notify(f"Saved {result}", markup=False)

    def action_choose(self) -> None:
        metrics = [chart.metric for chart in self.charts]
        self.app.push_screen(MetricChoiceScreen(self.key, metrics), self._choose_charts)

    def _choose_charts(self, metrics: tuple[str, ...] | None) -> None:
        """Show the chosen charts; one that stays keeps what it has drawn."""
        if metrics:
            charts = {chart.metric: chart for chart in self.charts}
            self.charts = [charts.get(metric) or MetricChart(metric) for metric in metrics]
            self.post_message(ViewStateRequested())


def _save(table: Table, name: str) -> Path | CommandError:
    try:
        return save(table, name)
    except CommandError as error:
        return error
