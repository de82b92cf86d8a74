"""One row for each GPU, the chart of the selected one, processes, the host, and the most severe alerts."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.widgets import Static

from gpumon.core.model import Device, Frame, Process
from gpumon.present.device_table import DeviceRow, copied_text, device_rows
from gpumon.present.first_run import first_run_lines, tour_line
from gpumon.present.header import banner
from gpumon.present.heat_map import heat_map_height
from gpumon.present.overview_plan import HEAT_MAP_FROM, OverviewPlan, plan_overview
from gpumon.present.overview_table import overview_columns, overview_line
from gpumon.present.overview_totals import totals_lines
from gpumon.present.paint.line import Line
from gpumon.present.process_table import (
    PROCESS_COLUMNS,
    ProcessRow,
    no_process_line,
    process_count,
    process_key,
    process_line,
    process_rows,
    scope_line,
    sm_age_text,
)
from gpumon.session.app_session import Demand
from gpumon.session.view_state import ViewState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import SignalRequested, ViewStateRequested
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.gpu_chart import SLOW_SECONDS, GpuChart
from gpumon.ui.widgets.heat_map_view import HeatMapView
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.table_view import TableView
from gpumon.ui.widgets.text_lines import TextLines

MIN_WIDTH: Final = 60
MIN_HEIGHT: Final = 10
_BANNER_LINES: Final = ((30, 3), (20, 2), (0, 1))
"""Heights of terminals, and how many lines of the banner they have."""


class _View(Enum):
    """How the GPUs are shown."""

    TABLE = "table"
    MAP = "map"
    HISTORY = "history"


class OverviewScreen(ViewScreen[None]):
    """The first screen.

    Args:
        is_of_fleet: Whether it is that of a host of the fleet, from which there is a way back.
    """

    PAGE: ClassVar[str] = "docs/overview.md"
    TAB: ClassVar[str] = "GPUs"
    SELECTS_DEVICE: ClassVar[bool] = True
    AUTO_FOCUS: ClassVar[str] = "#devices"
    LEGEND: ClassVar[str] = """\
A GPU
  Util           share of time in which a kernel or a copy ran; not how
                 much of the GPU worked
  GPU            1:0 is the first MIG instance of GPU 1
  Memory GiB     held by processes / installed, without the driver's
                 reserve; ~ memory that the GPU shares with the host
  Power W        draw / limit           SM MHz   clock / maximum
  MemCtl         share of time in which device memory was read or written
  PCIe           generation x lanes     Perf     P0 is the fastest state
  State          why the clocks are lowered; a power cap is normal at
                 full load
                 no SM work: busy, but only with copies, or stuck
                 UNRESPONSIVE 12s: the driver has not answered since then
                 LOST: the GPU or the driver is gone   STALE 5s: old value
  Util 52s       the last 52 seconds, on a scale to 100 % or all memory;
                 _ is idle, a dot is a gap without a value;
                 ┆ a workload of gpumon started or ended
  !  before a value: needs attention    –  no value: enter shows why
                                        ?  an impossible value
"""
    BINDINGS: ClassVar[Bindings] = [
        key("overview.scope", "Scope", "Processes of the selected GPU, or of all GPUs"),
        key("overview.signal", "Signal", "Send a signal to the selected process"),
        key("overview.view", "View", "GPUs as a table, as a map over time, and many GPUs as a map"),
        key("overview.back", "Back", "Back to the fleet"),
    ]

    def __init__(self, *, is_of_fleet: bool = False) -> None:
        super().__init__()
        self.is_of_fleet = is_of_fleet
        self._shows_all = False
        """Whether the process table has the processes of all GPUs."""
        self._can_signal = False
        self._keys: frozenset[str] = frozenset()
        """All devices."""
        self._selected_key: str | None = None
        """The device whose chart and processes are shown."""
        self._drawn_totals: tuple[tuple[object, ...], Sequence[Line]] | None = None
        """The totals, and what they were drawn for."""
        self._listed: tuple[tuple[object, ...], Sequence[ProcessRow]] | None = None
        """The rows of processes, and what they were made for."""
        self._shown_rows: Sequence[ProcessRow] = ()
        self._view = 0
        """How often another view was requested."""
        self._devices: TableView[DeviceRow] = TableView(
            LineTable(id="devices"), lambda row: row.device.key, overview_line, copied_text
        )
        self._processes: TableView[ProcessRow] = TableView(LineTable(id="processes"), process_key, process_line)
        self._map = HeatMapView(id="heat-map")
        self._chart = GpuChart()

    def compose(self) -> ComposeResult:
        yield from self.compose_top("totals", "banner")
        yield self._devices
        yield self._map
        yield from self._chart.compose()
        yield TextLines(id="scope")
        yield TextLines(id="nothing")
        yield self._processes
        yield TextLines(id="explanation")
        yield Static(id="too-small", markup=False)
        yield Footer()

    @property
    def demand(self) -> Demand:
        """The values of the selected device that stand next to the chart and in the process table."""
        if self.has_class("heat-map") and self._map.is_over_time and self._map.history_mode.is_on_demand:
            return Demand(device_keys=self._keys)
        key = self.key
        return Demand(
            device_keys=frozenset() if key is None else frozenset({key}),
            process_keys=self._keys if self._shows_all else frozenset(),
        )

    @property
    def key(self) -> str | None:
        """The selected device: that of the process under the cursor, or that under the cursor; None without any."""
        process = self._processes.selected
        if self._shows_all and process is not None and self.focused is self._processes.table:
            return process.device.key
        if self.has_class("heat-map"):
            return self._map.selected
        device = self._devices.selected
        return None if device is None else device.device.key

    def show(self, state: ViewState) -> None:
        if self.has_class("too-small"):
            return
        frame, self._can_signal = state.frame, state.is_changeable
        alerts = self._banner(state)
        self._lines("banner").show(alerts)
        problem = None if frame.devices else frame.problems.get("driver")
        self.set_class(problem is not None, "nothing-to-show")
        if problem is not None:
            self._lines("explanation").show(first_run_lines(problem, *self.size))
            return
        self._show_devices(state, len(alerts))
        if self.focused is None:  # hidden tables lose the focus, and come back with the next refresh
            self.call_after_refresh(self._device_widget.focus)

    def on_resize(self, _: events.Resize) -> None:
        """Show the terminal's size in place of the tables if there is no room for them."""
        width, height = self.app.size
        small = width < MIN_WIDTH or height < MIN_HEIGHT
        self.set_class(small, "too-small")
        if small:
            text = f"{width}x{height} is too small: gpumon needs {MIN_WIDTH}x{MIN_HEIGHT}"
            self._write("too-small", text)

    @on(LineTable.CursorMoved)
    def follow_cursor(self) -> None:
        """Draw the chart and the processes of the GPU that is selected now, if it is another one."""
        if self.key != self._selected_key:
            self.post_message(ViewStateRequested())

    @on(HeatMapView.SelectionMoved)
    def follow_map(self) -> None:
        """Draw the map, and the GPU that is selected in it now."""
        self.post_message(ViewStateRequested())

    @on(LineTable.RowChosen, "#devices")
    @on(HeatMapView.DeviceChosen)
    def open_device(self, chosen: LineTable.RowChosen | HeatMapView.DeviceChosen) -> None:
        """Show the chosen device over time, with all of its values."""
        self._open_device(chosen.key)

    @on(LineTable.RowChosen, "#processes")
    def open_process(self, chosen: LineTable.RowChosen) -> None:
        """Show all values of the chosen process; the row of unattributed memory opens its device."""
        from gpumon.ui.screens.process import ProcessScreen  # late: the first values must not wait for it

        device_key, _, pid = chosen.key.rpartition("/")
        if pid:
            self.app.push_screen(ProcessScreen(device_key, int(pid)))
        else:
            self._open_device(device_key)

    def _open_device(self, key: str) -> None:
        from gpumon.ui.screens.device import DeviceScreen  # late: the first values must not wait for it

        self.app.push_screen(DeviceScreen(key))

    @property
    def device_key(self) -> str | None:
        return self.key

    @property
    def selected_process(self) -> Process | None:
        """The process under the cursor, if their table has the focus."""
        row = self._processes.selected
        return None if row is None or self.focused is not self._processes.table else row.process

    def select_device(self, step: int) -> None:
        """Select the GPU that is ``step`` places further; the first one follows the last one."""
        table = self._devices.table
        if self.has_class("heat-map"):
            self._map.select(step)
        elif table.rows:
            table.cursor = (table.cursor + step) % len(table.rows)

    def show_device(self, key: str) -> None:
        """Select a GPU, if it is listed; both views select the same one."""
        table = self._devices.table
        self._map.selected = key
        table.select(key)

    def action_back(self) -> None:
        self.app.pop_screen()

    def action_scope(self) -> None:
        self._shows_all = not self._shows_all
        self.post_message(ViewStateRequested())

    def action_signal(self) -> None:
        process = self.selected_process
        if process is not None:
            self.post_message(SignalRequested([process]))

    def action_view(self) -> None:
        self._view += 1
        self.post_message(ViewStateRequested())

    def conditions(self) -> Mapping[str, bool]:
        has_gpus = not self.has_class("nothing-to-show")
        can_signal = self._can_signal and self.focused is self._processes.table
        return {"back": self.is_of_fleet, "view": has_gpus, "scope": has_gpus, "signal": can_signal}

    @property
    def _device_widget(self) -> LineTable | HeatMapView:
        return self._map if self.has_class("heat-map") else self._devices.table

    def _show_devices(self, state: ViewState, banner_lines: int) -> None:
        """Show everything that is about devices, in the lines that the plan gives to each part."""
        frame, width = state.frame, self.size.width
        rows = device_rows(state)
        self._keys = frozenset(row.device.key for row in rows)
        key = self.key
        is_other_view = self._choose_view(len(rows))
        selected = next((row for row in rows if row.device.key == key), rows[0] if rows else None)
        self._selected_key = None if selected is None else selected.device.key
        scope = None if self._shows_all or selected is None else selected.device
        processes = self._process_rows(state, scope)
        height = self.size.height
        wanted = len(rows)
        if self.has_class("heat-map"):
            wanted = len(rows) + 1 if self._map.is_over_time else heat_map_height(rows, width, height // 2)
        plan = plan_overview(height, wanted, len(processes), banner_lines, gpus=len(frame.gpus))
        if is_other_view:
            self._map.selected = key
        self._lines("totals").show(self._totals(state, rows, plan.totals))
        if self.has_class("heat-map"):
            self._map.show_map(rows, width, plan.devices + 1)
        else:
            self._devices.styles.height = plan.devices + self._devices.frame_height
            self._devices.show(overview_columns(frame.devices, width), rows)
        if is_other_view and key is not None:
            self.show_device(key)
        self._chart.show(state, selected, width, plan.chart)
        self._show_processes(processes, frame, scope, plan)

    def _process_rows(self, state: ViewState, scope: Device | None) -> Sequence[ProcessRow]:
        """The rows of processes, which are made again at another pace, or as soon as a process starts or ends."""
        frame, probes = state.frame, state.probes.probes
        present = [(device.state, [process.pid for process in device.processes or ()]) for device in frame.devices]
        moment = frame.monotonic_seconds // SLOW_SECONDS
        made_for = state.store, None if scope is None else scope.key, moment, frozenset(probes), present
        if self._listed is None or self._listed[0] != made_for:
            self._listed = made_for, process_rows(frame, probes, scope)
        return self._listed[1]

    def _totals(self, state: ViewState, rows: Sequence[DeviceRow], max_lines: int) -> Sequence[Line]:
        """The totals, which are drawn again at another pace than the table, or as soon as a GPU falls silent."""
        frame, width = state.frame, self.size.width
        silent = bool(state.silence_seconds), sum(map(frame.is_fresh, frame.gpus))
        drawn_for = width, max_lines, len(rows), silent, frame.monotonic_seconds // SLOW_SECONDS
        if self._drawn_totals is None or self._drawn_totals[0] != drawn_for:
            self._drawn_totals = drawn_for, totals_lines(state, rows, width, max_lines)
        return self._drawn_totals[1]

    def _show_processes(
        self, rows: Sequence[ProcessRow], frame: Frame, scope: Device | None, plan: OverviewPlan
    ) -> None:
        """Show the processes of a device, or of all of them."""
        note = sm_age_text(frame.devices if scope is None else [scope])
        heading = [scope_line(scope, len(rows), process_count(frame), self.size.width, note)]
        self._lines("scope").show(heading if plan.has_scope else [])
        if rows is not self._shown_rows:
            self._shown_rows = rows
            self._processes.show(PROCESS_COLUMNS, rows)
        self._lines("nothing").show([] if rows else [no_process_line(scope)])
        self._processes.display = bool(rows)

    def _choose_view(self, devices: int) -> bool:
        """Show the view that the user wants, at first many devices as a map; return whether it has changed."""
        views = (_View.MAP, _View.TABLE, _View.HISTORY) if devices >= HEAT_MAP_FROM else (_View.TABLE, _View.HISTORY)
        view = views[self._view % len(views)]
        is_map = view is not _View.TABLE
        self._map.is_over_time = view is _View.HISTORY
        if is_map == self.has_class("heat-map"):
            return False
        self.set_class(is_map, "heat-map")
        self.set_focus(self._device_widget)  # at once: the next key may arrive before the next refresh
        return True

    def _banner(self, state: ViewState) -> list[Line]:
        max_lines = next(lines for height, lines in _BANNER_LINES if self.size.height >= height)
        shown = [alert for alert in state.alerts if state.frame.devices or alert.id != "driver"]
        tour = [tour_line(state.frame, self.size.width)] if state.has_tour and state.frame.devices else []
        alerts = banner(shown, self.size.width, max_lines - len(tour), state.frame.time_seconds)
        return [*tour, *alerts]

    def _write(self, name: str, text: str) -> None:
        static = self.query_one(f"#{name}", Static)
        if static.content != text:
            static.update(text)
