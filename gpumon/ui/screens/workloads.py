"""What can be run, what runs, and what was run before."""

from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer, Static

from gpumon.core.model import Device
from gpumon.core.problems import Problem
from gpumon.jobs.catalogue import BrokenWorkload
from gpumon.ui.jobs import BoardRun
from gpumon.ui.messages import SceneWanted
from gpumon.ui.paint.columns import headings, place, row_line
from gpumon.ui.paint.line import Line, Role, Span, clipped, line, plain
from gpumon.ui.scene import Scene
from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.screens.run import RunScreen
from gpumon.ui.screens.workload_form import WorkloadForm
from gpumon.ui.view.around import title_line
from gpumon.ui.view.workloads import (
    EARLIER_COLUMNS,
    RUN_COLUMNS,
    WORKLOAD_COLUMNS,
    RunRow,
    WorkloadRow,
    earlier_rows,
    workload_key,
    workload_note,
    workload_rows,
)
from gpumon.ui.widgets.line_table import MARGIN, LineTable, TableRow
from gpumon.ui.widgets.text_line import TextLines
from gpumon.ui.workshop import Workshop

_LINES_AROUND: Final = 5
"""Title, the sentence under it, two headings and the footer."""
_NOTE_LINES: Final = 2
_LEAST_HEIGHT_FOR_NOTE: Final = 16
_LEAST_RUN_ROWS: Final = 3
_LEAST_EARLIER_LINES: Final = 3


class _OpeningTable(LineTable, inherit_bindings=True):
    """A table whose rows lead further."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "Open", id="table.open", tooltip="Open the workload's form, or the run"),
    ]


class WorkloadsScreen(DrawnScreen[None]):
    """The list of workloads and the table of runs.

    Args:
        workshop: What knows them.
    """

    AUTO_FOCUS: ClassVar[str] = "#workloads"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left,h", "app.pop_screen", "Back", id="workloads.back", tooltip="Back to all GPUs"),
        Binding("x", "stop", "Stop", id="workloads.stop", tooltip="Stop the run under the cursor"),
    ]

    def __init__(self, workshop: Workshop) -> None:
        super().__init__()
        self._workshop = workshop
        self._devices: tuple[Device, ...] = ()
        self._can_stop: bool | None = None

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield TextLines(id="interpreter")
        yield TextLines(id="workload-headings")
        yield _OpeningTable(id="workloads")
        yield Static(id="note", markup=False)
        yield TextLines(id="run-headings")
        yield _OpeningTable(id="runs")
        yield TextLines(id="earlier")
        yield Footer()

    def on_mount(self) -> None:
        """What can be run may have changed since the last time."""
        self._workshop.look_around()

    def show(self, scene: Scene) -> None:
        """Draws the tables."""
        self._devices = scene.frame.devices if scene.is_this_machine else ()
        running = len(self._workshop.board.running)
        with self.app.batch_update():
            title = title_line("Workloads", f"{running} running" if running else "", scene, self.size.width)
            self._lines("title").show([title])
            self._lines("interpreter").show([clipped_line(self._interpreter_line(), self.size.width)])
            self._show_tables()
            self.show_note()

    @on(LineTable.CursorMoved)
    def show_note(self) -> None:
        """Shows all of what is said about the workload under the cursor, and whether that run can be stopped."""
        rows, cursor = self._rows(), self.query_one("#workloads", LineTable).cursor
        note = workload_note(rows[cursor]) if cursor < len(rows) else ""
        static = self.query_one("#note", Static)
        if static.content != note:
            static.update(note, layout=False)
        can_stop = self._chosen_run() is not None
        if can_stop != self._can_stop:
            self._can_stop = can_stop
            self.refresh_bindings()

    @on(LineTable.RowChosen, "#workloads")
    def open_form(self, chosen: LineTable.RowChosen) -> None:
        """Opens the form of the chosen workload."""
        row = next((each for each in self._rows() if workload_key(each) == chosen.key), None)
        if row is None:
            return
        if isinstance(row, BrokenWorkload):
            self.notify(row.reason, severity="warning", markup=False)
        else:
            self.app.push_screen(WorkloadForm(self._workshop, row, self._devices), self._open_started)

    @on(LineTable.RowChosen, "#runs")
    def open_run(self, chosen: LineTable.RowChosen) -> None:
        """Opens the chosen run."""
        entry = self._run(chosen.key)
        if entry is not None:
            self.app.push_screen(RunScreen(self._workshop, entry))

    def action_stop(self) -> None:
        entry = self._chosen_run()
        if entry is not None:
            entry.stop()
            self.post_message(SceneWanted())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hides the key for stopping where nothing runs."""
        if action == "stop":
            return self._chosen_run() is not None
        return super().check_action(action, parameters)

    def _open_started(self, started: list[BoardRun] | None) -> None:
        """One run is watched at once; several are seen best in the table."""
        if started is not None and len(started) == 1:
            self.app.push_screen(RunScreen(self._workshop, started[0]))
        elif started:
            self.query_one("#runs", LineTable).focus()

    def _show_tables(self) -> None:
        width = self.size.width - MARGIN - 1
        rows = self._rows()
        columns = place(WORKLOAD_COLUMNS, width)
        workloads = [TableRow(workload_key(row), row_line(columns, row)) for row in rows]
        if self._workshop.catalogue is None:
            workloads = [TableRow("", line(Span("Looking for workloads ...", Role.DIM)))]
        self._lines("workload-headings").show([self._heading(plain(headings(columns)))])
        now = self._workshop.clock()
        run_columns = place(RUN_COLUMNS, width)
        runs = [TableRow(each.key, row_line(run_columns, RunRow(each, now))) for each in self._workshop.board.runs]
        self._lines("run-headings").show([self._heading(plain(headings(run_columns)))])
        has_note = self.size.height >= _LEAST_HEIGHT_FOR_NOTE
        self.query_one("#note").display = has_note
        room = self.size.height - _LINES_AROUND - (_NOTE_LINES if has_note else 0)
        workload_height = max(1, min(len(workloads), room - _LEAST_RUN_ROWS))
        earlier = self._earlier_lines(room - workload_height - max(1, len(runs)) - 1)
        self._table("workloads").styles.height = workload_height
        self._table("workloads").show(workloads)
        self._table("runs").styles.height = max(1, len(runs)) + 1 if earlier else "1fr"
        self._table("runs").show(runs)
        self._lines("earlier").show(earlier)

    def _earlier_lines(self, room: int) -> list[Line]:
        """Kept results of other sessions, where there is room for some."""
        if not self._workshop.earlier or room < _LEAST_EARLIER_LINES:
            return []
        columns = place(EARLIER_COLUMNS, self.size.width - MARGIN - 1)
        rows = earlier_rows(self._workshop.earlier, room - 1)
        lines = [line(Span(" " * MARGIN, Role.DIM), *row_line(columns, row)) for row in rows]
        return [self._heading(plain(headings(columns))), *lines]

    def _interpreter_line(self) -> Line:
        found = self._workshop.interpreter
        if found is None:
            return line(Span(" Looking for a Python with torch ...", Role.DIM))
        if isinstance(found, Problem):
            return line(Span(f" ! {found}", Role.WARNING))
        return line(Span(f" They run with {found.path} ({found.found_in}).", Role.DIM))

    def _rows(self) -> list[WorkloadRow]:
        return [] if self._workshop.catalogue is None else workload_rows(self._workshop.catalogue)

    def _run(self, key: str) -> BoardRun | None:
        return next((each for each in self._workshop.board.runs if each.key == key), None)

    def _chosen_run(self) -> BoardRun | None:
        """The run under the cursor, if it can be stopped."""
        if not self.is_mounted:
            return None
        table = self._table("runs")
        entry = self._run(table.rows[table.cursor].key) if table.cursor < len(table.rows) else None
        return None if entry is None or entry.run.ended else entry

    def _heading(self, text: str) -> Line:
        return (Span((" " * MARGIN + text).ljust(self.size.width), Role.HEADING),)

    def _lines(self, name: str) -> TextLines:
        return self.query_one(f"#{name}", TextLines)

    def _table(self, name: str) -> LineTable:
        return self.query_one(f"#{name}", LineTable)


def clipped_line(text: Line, width: int) -> Line:
    """A line of one span, cut to a width."""
    return tuple(Span(clipped(span.text, width), span.role) for span in text)
