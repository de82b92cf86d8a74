"""One row for each GPU, their processes, the host, and the most severe alerts."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.widgets import Static

from gpumon.core.model import Host
from gpumon.core.problems import Problem
from gpumon.present.device_table import DEVICE_COLUMNS, device_rows
from gpumon.present.header import banner, host_line, running_text, title_line, totals_text, versions_text
from gpumon.present.paint.line import Line, Role, Span, plain
from gpumon.present.paint.table import LazyRow, PlacedColumn, RowT, TableRow, fit_columns, headings, row_line
from gpumon.present.process_table import PROCESS_COLUMNS, process_key, process_line, process_rows
from gpumon.session.view_state import ViewState
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.process import ProcessScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import MARGIN, LineTable
from gpumon.ui.widgets.text_lines import TextLines

MIN_WIDTH: Final = 60
MIN_HEIGHT: Final = 10
_MAX_BANNER_LINES: Final = 3
_MIN_HEIGHT_FOR_BANNER: Final = 20
"""Lower terminals show one alert only."""
_MAX_DEVICE_SHARE: Final = 0.6
_MIN_PROCESS_ROWS: Final = 3
_OTHER_LINES: Final = 5
"""Title, two headings, the host and the footer."""


class OverviewScreen(ViewScreen[None]):
    """The first screen."""

    AUTO_FOCUS: ClassVar[str] = "#devices"

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield TextLines(id="banner")
        yield TextLines(id="device-headings")
        yield LineTable(id="devices")
        yield TextLines(id="process-headings")
        yield LineTable(id="processes")
        yield Static(id="explanation", markup=False)
        yield Static(id="too-small", markup=False)
        yield TextLines(id="host")
        yield Footer()

    @property
    def key(self) -> str | None:
        """The device under the cursor, or the device of the process under the cursor; None while there is none."""
        table = self._table("processes" if self.focused is self._table("processes") else "devices")
        chosen = table.rows[table.cursor].key if table.cursor < len(table.rows) else None
        return chosen.rpartition("/")[0] if chosen is not None and table.id == "processes" else chosen

    def show(self, state: ViewState) -> None:
        """Draw a state."""
        if self.has_class("too-small"):
            return
        frame = state.frame
        with self.app.batch_update():
            what = f"gpumon  {running_text(state.workloads.running_count)}{versions_text(frame)}"
            title = title_line(what, totals_text(frame), state, self.size.width)
            self._lines("title").show([title])
            alerts = self._banner(state)
            self._lines("banner").show(alerts)
            self._lines("host").show([] if frame.host == Host() else [host_line(frame)])
            problem = None if frame.devices else frame.problems.get("driver")
            self.set_class(problem is not None, "nothing-to-show")
            if problem is not None:
                self._write("explanation", explanation(problem))
            else:
                self._show_tables(state, height=self.size.height - _OTHER_LINES - len(alerts))
                if self.focused is None:  # hidden tables lose the focus, and come back with the next refresh
                    self.call_after_refresh(self._table("devices").focus)

    def on_resize(self, _: events.Resize) -> None:
        """Show the terminal's size in place of the tables if there is no room for them."""
        width, height = self.app.size
        small = width < MIN_WIDTH or height < MIN_HEIGHT
        self.set_class(small, "too-small")
        if small:
            text = f"{width}x{height} is too small: gpumon needs {MIN_WIDTH}x{MIN_HEIGHT}"
            self._write("too-small", text)

    @on(LineTable.RowChosen, "#devices")
    def open_device(self, chosen: LineTable.RowChosen) -> None:
        """Show the chosen device over time, with all of its values."""
        self.app.push_screen(DeviceScreen(chosen.key))

    @on(LineTable.RowChosen, "#processes")
    def open_process(self, chosen: LineTable.RowChosen) -> None:
        """Show all values of the chosen process; the row of unattributed memory opens its device."""
        device_key, _, pid = chosen.key.rpartition("/")
        self.app.push_screen(ProcessScreen(device_key, int(pid)) if pid else DeviceScreen(device_key))

    def _show_tables(self, state: ViewState, height: int) -> None:
        frame = state.frame
        width = self.size.width - MARGIN - 1  # one cell for the scroll bar, so that nothing moves when it appears
        columns = fit_columns(DEVICE_COLUMNS, width)
        devices = [TableRow(row.device.key, row_line(columns, row)) for row in device_rows(state)]
        process_columns = fit_columns(PROCESS_COLUMNS, width)
        processes = [
            LazyRow(process_key(row), partial(process_line, process_columns, row)) for row in process_rows(frame)
        ]
        table = self._table("devices")
        table.styles.height = _device_height(len(devices), len(processes), height)
        self._lines("device-headings").show([_heading(columns, self.size.width)])
        table.show(devices)
        self._lines("process-headings").show([_heading(process_columns, self.size.width)])
        self._table("processes").show(processes)

    def _banner(self, state: ViewState) -> list[Line]:
        max_lines = _MAX_BANNER_LINES if self.size.height >= _MIN_HEIGHT_FOR_BANNER else 1
        shown = [alert for alert in state.alerts if state.frame.devices or alert.id != "driver"]
        return banner(shown, self.size.width, max_lines, state.frame.time_seconds)

    def _write(self, name: str, text: str) -> None:
        static = self.query_one(f"#{name}", Static)
        if static.content != text:
            static.update(text)

    def _lines(self, name: str) -> TextLines:
        return self.query_one(f"#{name}", TextLines)

    def _table(self, name: str) -> LineTable:
        return self.query_one(f"#{name}", LineTable)


def _device_height(devices: int, processes: int, height: int) -> int:
    """Lines for the devices: as many as they need, as long as some lines are left for the processes."""
    process_height = max(1, min(processes, max(_MIN_PROCESS_ROWS, int(height * (1 - _MAX_DEVICE_SHARE)))))
    return max(1, min(devices, height - process_height))


def _heading(columns: Sequence[PlacedColumn[RowT]], width: int) -> Line:
    """The headings across the complete width, so that they divide the screen."""
    text = " " * MARGIN + plain(headings(columns))
    return (Span(text.ljust(width), Role.HEADING),)


def explanation(problem: Problem) -> str:
    """The text in place of the tables when there is no GPU."""
    return (
        f"No GPU to show.\n\n{problem.reason}\n\n{problem.remedy}\n\n"
        "gpumon keeps trying and starts as soon as the driver responds.\n"
        "Press d to play a recording of a host with eight GPUs,\n"
        "w to run workloads on the CPU, q to quit."
    )
