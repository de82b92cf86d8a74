"""The training jobs of this host: who runs what on which GPUs, how fast, and whether it hangs."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Event
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult

from gpumon.core.problems import CommandError, Problem
from gpumon.core.units import file_stamp
from gpumon.operations.training_jobs.report import THIS_HOST, TrainingJobReport
from gpumon.present.jobs import JOB_COLUMNS, headline_lines, jobs_title, no_jobs_text
from gpumon.session.app_session import Demand
from gpumon.session.background import run_in_background
from gpumon.session.view_state import ViewState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.screens.job import JobScreen
from gpumon.ui.screens.probe_question import ask_for_probe
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.table_view import TableView
from gpumon.ui.widgets.text_lines import TextLines

_HEADLINE_LINES: Final = 3
_LOW_HEADLINE_LINES: Final = 2
_MIN_HEIGHT: Final = 14
"""Lower terminals have less room for the sentence."""


class JobsScreen(ViewScreen[None]):
    """A row for each job, and the verdict on the selected one below."""

    PAGE: ClassVar[str] = "docs/jobs.md"
    TAB: ClassVar[str] = "Jobs"
    AUTO_FOCUS: ClassVar[str] = "#jobs"
    BINDINGS: ClassVar[Bindings] = [
        key("jobs.save", "Report", "Write a report of the selected job until it ends or gpumon does")
    ]

    def __init__(self) -> None:
        super().__init__()
        self._state: ViewState | None = None
        self._table = TableView[TrainingJobReport](LineTable(id="jobs"), lambda report: report.key)

    def compose(self) -> ComposeResult:
        yield from self.compose_top("title")
        yield self._table
        yield TextLines(id="headline")
        yield Footer()

    @property
    def demand(self) -> Demand:
        """The jobs, and what each process runs on every GPU."""
        devices = () if self._state is None else self._state.frame.devices
        return Demand(process_keys=frozenset(device.key for device in devices), jobs=True)

    def show(self, state: ViewState) -> None:
        self._state = state
        reports = state.jobs.reports
        self.show_title(*jobs_title(reports))
        self._table.show(JOB_COLUMNS, reports, no_jobs_text(state))
        self.show_headline()

    @on(LineTable.CursorMoved)
    def show_headline(self) -> None:
        """Show the verdict on the job under the cursor."""
        height = _HEADLINE_LINES if self.size.height >= _MIN_HEIGHT else _LOW_HEADLINE_LINES
        self._lines("headline").show(headline_lines(self._table.selected, self.size.width, height))

    @on(LineTable.RowChosen)
    def open_job(self, chosen: LineTable.RowChosen) -> None:
        """Open the ranks of the job."""
        report = self._table.row(chosen.key)
        if report is not None:
            self.app.push_screen(JobScreen(report))

    def conditions(self) -> Mapping[str, bool]:
        return {"save": self._state is None or self._state.is_this_host}

    def action_save(self) -> None:
        """Write the report of the job under the cursor from now on."""
        report = self._table.selected
        pids = [] if report is None else [rank.pid for rank in report.ranks if rank.host == THIS_HOST and rank.pid]
        if report is None or self._state is None or not pids:
            self.notify("Select a job whose ranks run on this host.", severity="warning", markup=False)
        else:
            ask_for_probe(self, pids[0], self._state.load_probe, partial(self._follow, report.name, pids))

    def _follow(self, name: str, pids: Sequence[int], problem: Problem | None) -> None:
        """Write a report, without steps if the job has no probe."""
        folder = Path(f"gpumon-report-{file_stamp()}")
        without = "" if problem is None else f" It is without steps: {problem.reason}"
        self.notify(
            f"Writing {folder / 'report.html'} about {name} until it ends or gpumon does.{without}", markup=False
        )
        say = partial(self.app.notify, markup=False)
        run_in_background(partial(_write_report, folder, pids), say, self.app.call_later)


def _write_report(folder: Path, pids: Sequence[int]) -> str:
    """Write a report until the processes end; returns what became of it."""
    from gpumon.operations.run_report.watched import follow_run  # late: few sessions write a report
    from gpumon.present.report.write import write_report

    try:
        follow_run(folder, pids, Event(), write_report)
    except CommandError as error:
        return str(error)
    return f"The job has ended: {folder / 'report.html'}"
