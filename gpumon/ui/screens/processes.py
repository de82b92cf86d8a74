"""The processes of all GPUs: sorted, filtered, grouped, marked, and signalled."""

from collections.abc import Mapping
from typing import ClassVar

from textual import on
from textual.app import ComposeResult

from gpumon.core.model import Process
from gpumon.present.process_list import (
    LISTED_COLUMNS,
    Grouping,
    ListedProcess,
    grouped,
    listed_key,
    listed_line,
    listed_processes,
    no_rows_text,
    processes_of,
    processes_title,
)
from gpumon.present.process_table import sm_age_text
from gpumon.session.app_session import Demand
from gpumon.session.process_registry import Identity, identity_of
from gpumon.session.view_state import ViewState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import SignalRequested, ViewStateRequested
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.screens.device import DeviceScreen
from gpumon.ui.screens.process import ProcessScreen
from gpumon.ui.screens.why import WhyScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.table_view import TableView


class ProcessesScreen(ViewScreen[None]):
    """A row for each process on each GPU that it uses."""

    PAGE: ClassVar[str] = "docs/processes.md"
    TAB: ClassVar[str] = "Processes"
    LISTS_PROCESSES: ClassVar[bool] = True
    AUTO_FOCUS: ClassVar[str] = "#all-processes"
    LEGEND: ClassVar[str] = """\
A PROCESS
  Type           C compute, G graphics, M client of MPS
  CPU%           100 is one processor of the host
"""
    BINDINGS: ClassVar[Bindings] = [
        key("processes.signal", "Signal", "Send a signal to the marked processes or this one"),
        key("processes.mark", "Mark", "Mark the process or the group, or remove the mark", display="*"),
        key("processes.why", "Why slow", "Why the training run of the process is slow"),
        key("processes.tree", "Group", "Group by parent, by user, by job, or not at all"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._state: ViewState | None = None
        self._marked: set[Identity] = set()
        self._grouping = Grouping.NONE
        self._table = TableView[ListedProcess](LineTable(id="all-processes"), listed_key, listed_line)
        self._table.regroup = lambda rows: grouped(rows, self._grouping)

    def compose(self) -> ComposeResult:
        yield from self.compose_top("title")
        yield self._table
        yield Footer()

    @property
    def demand(self) -> Demand:
        """What each process runs on every GPU, and what started it."""
        devices = () if self._state is None else self._state.frame.devices
        return Demand(process_keys=frozenset(device.key for device in devices), processes=True)

    @property
    def device_key(self) -> str | None:
        """The device of the process under the cursor."""
        selected = self._table.selected
        return None if selected is None else selected.base.device.key

    @property
    def selected_process(self) -> Process | None:
        selected = self._table.selected
        return None if selected is None or selected.group is not None else selected.base.process

    @property
    def _processes(self) -> list[Process]:
        """Every process, once for each device that it uses."""
        devices = () if self._state is None else self._state.frame.devices
        return [process for device in devices for process in device.processes or ()]

    def show(self, state: ViewState) -> None:
        """Draw the table. A mark stays with its process, and goes with it."""
        self._state = state
        if self._marked:
            self._marked &= {identity_of(process) for process in self._processes}
        rows = listed_processes(state, self._marked)
        title, details = processes_title(rows, self._grouping, len(self._marked))
        details = "  ".join(filter(None, (sm_age_text(state.frame.devices), details)))
        self.show_title(title, details)
        self._table.show(LISTED_COLUMNS, rows, no_rows_text(state))

    @on(LineTable.RowChosen)
    def open_process(self, chosen: LineTable.RowChosen) -> None:
        """Open the process, or the device whose memory no process holds."""
        row = self._table.row(chosen.key)
        if row is None or row.group is not None:
            return
        process, key = row.base.process, row.base.device.key
        self.app.push_screen(DeviceScreen(key) if process is None else ProcessScreen(key, process.pid))

    def conditions(self) -> Mapping[str, bool]:
        state = self._state
        return {} if state is None else {"signal": state.is_changeable, "why": state.is_this_host}

    def action_signal(self) -> None:
        marked = [process for process in self._processes if identity_of(process) in self._marked]
        processes = marked or processes_of(self._table.selected)
        if processes:
            self.post_message(SignalRequested(processes))

    def action_why(self) -> None:
        process = self.selected_process
        if process is not None:
            self.app.push_screen(WhyScreen(process.pid))

    def action_mark(self) -> None:
        identities = {identity_of(process) for process in processes_of(self._table.selected)}
        if identities <= self._marked:
            self._marked -= identities
        else:
            self._marked |= identities
        self._table.table.action_move(1)
        self.post_message(ViewStateRequested())

    def action_tree(self) -> None:
        groupings = list(Grouping)
        self._grouping = groupings[(groupings.index(self._grouping) + 1) % len(groupings)]
        self.post_message(ViewStateRequested())
