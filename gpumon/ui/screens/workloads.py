"""The workloads that can be run, the runs of this gpumon, and saved results of earlier sessions."""

from collections.abc import Mapping
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.widgets import Static

from gpumon.core.problems import Problem
from gpumon.operations.workload import WorkloadRun
from gpumon.present.paint.line import Line, Role, Span, clipped, line, plain
from gpumon.present.paint.table import fit_columns, headings, row_line
from gpumon.present.workloads import (
    EARLIER_COLUMNS,
    RUN_COLUMNS,
    WORKLOAD_COLUMNS,
    WORKLOAD_COLUMNS_WITHOUT_GPU,
    RunRow,
    WorkloadRow,
    earlier_rows,
    workload_key,
    workload_note,
    workload_rows,
)
from gpumon.session.view_state import ViewState, WorkloadsState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import StopRequested, WorkloadsRefreshRequested
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.screens.run import CodeScreen, RunScreen
from gpumon.ui.screens.workload_form import WorkloadForm
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import MARGIN, LineTable
from gpumon.ui.widgets.table_view import TableView
from gpumon.ui.widgets.text_lines import TextLines
from gpumon.workload_runs.catalogue import BrokenWorkload, WorkloadInfo

_OTHER_LINES: Final = 4
"""Tabs, title, the line of the interpreter and the footer."""
_NOTE_LINES: Final = 2
_MIN_HEIGHT_FOR_NOTE: Final = 16
_MIN_RUN_ROWS: Final = 3
_MIN_EARLIER_LINES: Final = 3


class _OpeningTable(LineTable, inherit_bindings=True):
    """A table whose rows open another screen."""

    BINDINGS: ClassVar[Bindings] = [
        key("workloads-table.open", "Open", "Open the workload's form, or the run", "choose")
    ]


class WorkloadsScreen(ViewScreen[None]):
    """The list of workloads and the table of runs."""

    PAGE: ClassVar[str] = "docs/workloads.md"
    SHOWS_FRAMES: ClassVar[bool] = False
    TAB: ClassVar[str] = "Workloads"
    AUTO_FOCUS: ClassVar[str] = "#workloads"
    BINDINGS: ClassVar[Bindings] = [
        key("workloads.stop", "Stop", "Stop the run under the cursor"),
        key("workloads.view", "Code", "The code that the workload measures", "code"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._state: ViewState | None = None
        self._catalogue = TableView[WorkloadRow](_OpeningTable(id="workloads"), workload_key)
        self._runs = TableView[RunRow](_OpeningTable(id="runs"), lambda row: row.run.key)

    def compose(self) -> ComposeResult:
        yield from self.compose_top("title", "interpreter")
        yield self._catalogue
        yield Static(id="note", markup=False)
        yield self._runs
        yield TextLines(id="earlier")
        yield Footer()

    def on_mount(self) -> None:
        """Search for workloads: there may be others than the last time."""
        super().on_mount()
        self.post_message(WorkloadsRefreshRequested())

    def show(self, state: ViewState) -> None:
        self._state = state
        running = state.workloads.running_count
        self.show_title("Workloads", f"{running} running" if running else "")
        self._lines("interpreter").show([_interpreter_line(state.workloads, self.size.width)])
        self._show_tables(state.workloads)
        self.show_note()

    @on(LineTable.CursorMoved)
    def show_note(self) -> None:
        """Show the complete text about the workload under the cursor, and whether the run can be stopped."""
        row = self._catalogue.selected
        note = "" if row is None else workload_note(row, has_gpu=self._has_gpu)
        static = self.query_one("#note", Static)
        if static.content != note:
            static.update(note, layout=False)
        self.follow_conditions()

    @on(LineTable.RowChosen, "#workloads")
    def open_form(self, chosen: LineTable.RowChosen) -> None:
        """Open the form of the chosen workload."""
        row = self._catalogue.row(chosen.key)
        if row is None or self._state is None:
            return
        if isinstance(row, BrokenWorkload):
            self.notify(row.reason, severity="warning", markup=False)
        else:
            self.app.push_screen(WorkloadForm(row, self._state), self._focus_runs)

    @on(LineTable.RowChosen, "#runs")
    def open_run(self, chosen: LineTable.RowChosen) -> None:
        """Open the chosen run."""
        run = self._run(chosen.key)
        if run is not None:
            self.app.push_screen(RunScreen(run))

    def action_stop(self) -> None:
        run = self._stoppable_run
        if run is not None:
            self.post_message(StopRequested(run))

    def action_code(self) -> None:
        row = self._catalogue.selected
        if isinstance(row, WorkloadInfo) and row.code:
            self.app.push_screen(CodeScreen(row))
        else:
            self.notify("Its file names no code to show.", severity="warning")

    def conditions(self) -> Mapping[str, bool]:
        return {"stop": self._stoppable_run is not None}

    def _focus_runs(self, started_count: int | None) -> None:
        """Focus the table if several runs were started: the screen of a single one opens."""
        if started_count is not None and started_count > 1:
            self._runs.table.focus()

    def _show_tables(self, state: WorkloadsState) -> None:
        workloads = [] if state.catalogue is None else workload_rows(state.catalogue)
        runs = [RunRow(run, state.now_seconds) for run in state.runs]
        has_note = self.size.height >= _MIN_HEIGHT_FOR_NOTE
        self.query_one("#note").display = has_note
        height = self.size.height - _OTHER_LINES - (_NOTE_LINES if has_note else 0)
        height -= self._catalogue.frame_height + self._runs.frame_height
        workload_height = max(1, min(len(workloads), height - _MIN_RUN_ROWS))
        earlier = self._earlier_lines(state, height - workload_height - max(1, len(runs)) - 1)
        self._catalogue.styles.height = workload_height + self._catalogue.frame_height
        is_searching = state.catalogue is None
        columns = WORKLOAD_COLUMNS if self._has_gpu else WORKLOAD_COLUMNS_WITHOUT_GPU
        self._catalogue.show(columns, workloads, "Searching for workloads ..." if is_searching else "")
        self._runs.styles.height = max(1, len(runs)) + 1 + self._runs.frame_height if earlier else "1fr"
        self._runs.show(RUN_COLUMNS, runs)
        self._lines("earlier").show(earlier)

    def _earlier_lines(self, state: WorkloadsState, height: int) -> list[Line]:
        """Saved results of earlier sessions, if there is room for some."""
        if not state.earlier or height < _MIN_EARLIER_LINES:
            return []
        columns = fit_columns(EARLIER_COLUMNS, self.size.width - MARGIN - 1)
        rows = earlier_rows(state.earlier, height - 1)
        lines = [line(Span(" " * MARGIN, Role.DIM), *row_line(columns, row)) for row in rows]
        return [self._heading(plain(headings(columns))), *lines]

    def _run(self, key: str) -> WorkloadRun | None:
        return None if self._state is None else self._state.workloads.run(key)

    @property
    def _has_gpu(self) -> bool:
        """Whether this host has a GPU, as far as is known."""
        frame = None if self._state is None else self._state.frame
        return frame is None or bool(frame.devices) or "driver" not in frame.problems

    @property
    def _stoppable_run(self) -> WorkloadRun | None:
        """The run under the cursor, unless it has ended."""
        row = self._runs.selected
        return None if row is None or row.run.ended else row.run

    def _heading(self, text: str) -> Line:
        return (Span((" " * MARGIN + text).ljust(self.size.width), Role.HEADING),)


def _interpreter_line(state: WorkloadsState, width: int) -> Line:
    """The interpreter that workloads run with, or why there is none."""
    interpreter = state.interpreter
    if interpreter is None:
        text, role = " Searching for a Python with torch ...", Role.DIM
    elif isinstance(interpreter, Problem):
        text, role = f" ! {interpreter}", Role.WARNING
    else:
        text, role = f" Workloads run with {interpreter.path} ({interpreter.found_in}).", Role.DIM
    return line(Span(clipped(text, width), role))
