"""All GPUs in a row each, the processes under them, the machine, and what is wrong."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final

from textual import events, on
from textual.app import ComposeResult
from textual.widgets import Footer, Static

from gpumon.core.model import Host
from gpumon.core.problems import Problem
from gpumon.ui.paint.columns import Placed, RowT, headings, place, row_line
from gpumon.ui.paint.line import Line, Role, Span, plain
from gpumon.ui.scene import Scene
from gpumon.ui.screens.details import DetailsScreen
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.view.around import banner, host_line, running_text, title_line, totals_text, versions
from gpumon.ui.view.devices import DEVICE_COLUMNS, device_rows
from gpumon.ui.view.processes import PROCESS_COLUMNS, process_key, process_rows
from gpumon.ui.widgets.line_table import MARGIN, LaterRow, LineTable, TableRow
from gpumon.ui.widgets.text_line import TextLines

LEAST_WIDTH: Final = 60
LEAST_HEIGHT: Final = 10
_MOST_BANNER_LINES: Final = 3
_DEVICE_SHARE: Final = 0.6
_LINES_AROUND: Final = 5
"""Title, two headings, the machine and the footer."""


class OverviewScreen(DrawnScreen[None]):
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
        """The device under the cursor, or that of the process under it; None while there is none."""
        table = self._table("processes" if self.focused is self._table("processes") else "devices")
        chosen = table.rows[table.cursor].key if table.cursor < len(table.rows) else None
        return chosen.rpartition("/")[0] if chosen is not None and table.id == "processes" else chosen

    def show(self, scene: Scene) -> None:
        """Draws a scene."""
        if self.has_class("too-small"):
            return
        frame = scene.frame
        with self.app.batch_update():
            what = f"gpumon  {running_text(scene.workloads_running)}{versions(frame)}"
            title = title_line(what, totals_text(frame), scene, self.size.width)
            self._lines("title").show([title])
            alerts = self._banner(scene)
            self._lines("banner").show(alerts)
            self._lines("host").show([] if frame.host == Host() else [host_line(frame)])
            problem = None if frame.devices else frame.problems.get("driver")
            self.set_class(problem is not None, "nothing-to-show")
            if problem is not None:
                self._say("explanation", explanation(problem))
            else:
                self._show_tables(scene, room=self.size.height - _LINES_AROUND - len(alerts))
                if self.focused is None:  # hidden tables lose the focus, and come back with the next refresh
                    self.call_after_refresh(self._table("devices").focus)

    def on_resize(self, _: events.Resize) -> None:
        """Lays the tables out anew; says so when there is no room for them."""
        width, height = self.app.size
        small = width < LEAST_WIDTH or height < LEAST_HEIGHT
        self.set_class(small, "too-small")
        if small:
            text = f"{width}x{height} is too small: {LEAST_WIDTH}x{LEAST_HEIGHT} at least"
            self._say("too-small", text)

    @on(LineTable.RowChosen, "#devices")
    def open_device(self, chosen: LineTable.RowChosen) -> None:
        """Shows the chosen device over time, and every value of it."""
        self.app.push_screen(DeviceScreen(chosen.key))

    @on(LineTable.RowChosen, "#processes")
    def open_process(self, chosen: LineTable.RowChosen) -> None:
        """Shows every value of the chosen process; memory that none owns is its device's."""
        device_key, _, pid = chosen.key.rpartition("/")
        self.app.push_screen(DetailsScreen(device_key, int(pid)) if pid else DeviceScreen(device_key))

    def _show_tables(self, scene: Scene, room: int) -> None:
        frame = scene.frame
        width = self.size.width - MARGIN - 1  # a place for the scroll bar, so that a bar that appears moves nothing
        columns = place(DEVICE_COLUMNS, width)
        devices = [TableRow(row.device.key, row_line(columns, row)) for row in device_rows(scene)]
        process_columns = place(PROCESS_COLUMNS, width)
        processes = [LaterRow(process_key(row), partial(row_line, process_columns, row)) for row in process_rows(frame)]
        table = self._table("devices")
        table.styles.height = _device_height(len(devices), len(processes), room)
        self._lines("device-headings").show([_heading(columns, self.size.width)])
        table.show(devices)
        self._lines("process-headings").show([_heading(process_columns, self.size.width)])
        self._table("processes").show(processes)

    def _banner(self, scene: Scene) -> list[Line]:
        most = _MOST_BANNER_LINES if self.size.height >= 20 else 1
        shown = [alert for alert in scene.alerts if scene.frame.devices or alert.id != "driver"]
        return banner(shown, self.size.width, most, scene.frame.time_seconds)

    def _say(self, name: str, text: str) -> None:
        static = self.query_one(f"#{name}", Static)
        if static.content != text:
            static.update(text)

    def _lines(self, name: str) -> TextLines:
        return self.query_one(f"#{name}", TextLines)

    def _table(self, name: str) -> LineTable:
        return self.query_one(f"#{name}", LineTable)


def _device_height(devices: int, processes: int, room: int) -> int:
    """Lines for the devices: all they need, but not so many that the processes have no room, be it for none."""
    least_for_processes = max(1, min(processes, max(3, int(room * (1 - _DEVICE_SHARE)))))
    return max(1, min(devices, room - least_for_processes))


def _heading(columns: Sequence[Placed[RowT]], width: int) -> Line:
    """The headings across the whole width, so that they part the screen."""
    text = " " * MARGIN + plain(headings(columns))
    return (Span(text.ljust(width), Role.HEADING),)


def explanation(problem: Problem) -> str:
    """What is said in place of the tables when there is nothing to show."""
    return (
        f"No GPU to show.\n\n{problem.reason}\n\n{problem.remedy}\n\n"
        "gpumon goes on trying and starts by itself as soon as the driver answers.\n"
        "Press d to see it play a recording of a real machine with eight GPUs,\n"
        "w to run workloads on the CPU, q to quit."
    )
