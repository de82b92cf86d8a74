"""One training job: the verdict in a sentence, a row for each rank, and what speaks for the verdict."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gpumon.core.model import Frame
from gpumon.core.problems import CommandError
from gpumon.core.units import file_stamp
from gpumon.operations.training_jobs.report import THIS_HOST, RankReport, TrainingJobReport
from gpumon.present.jobs import evidence_lines, headline_lines, job_title
from gpumon.present.ranks import RANK_COLUMNS, rank_key
from gpumon.present.top_line import title_line
from gpumon.session.app_session import Demand
from gpumon.session.view_state import ViewState
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.screens.process import ProcessScreen
from gpumon.ui.screens.why import WhyScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.table_view import TableView
from gpumon.ui.widgets.text_lines import TextLines

if TYPE_CHECKING:
    from gpumon.operations.training_jobs.dump import DumpResult

_HEADLINE_LINES: Final = 3
_LOW_HEADLINE_LINES: Final = 2
_EVIDENCE_SHARE: Final = 0.25
_MIN_HEIGHT: Final = 14
"""Lower terminals have no lines of evidence."""


class JobScreen(ViewScreen[None]):
    """The ranks of a job.

    Args:
        report: The job as it is when the screen opens.
    """

    PAGE: ClassVar[str] = "docs/jobs.md"
    TAB: ClassVar[str] = "Jobs"
    AUTO_FOCUS: ClassVar[str] = "#ranks"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "why", "Why slow", id="job.why", tooltip="Why the rank under the cursor is slow"),
        Binding("S", "save", "Save", id="job.save", tooltip="Save what is known of the jobs for a bug report"),
        Binding("escape", "app.pop_screen", "Back", id="job.back", tooltip="Back to the training jobs"),
    ]

    def __init__(self, report: TrainingJobReport) -> None:
        super().__init__()
        self._report = report
        self._is_gone = False
        self._state: ViewState | None = None
        self._table = TableView[RankReport](LineTable(id="ranks"), rank_key)

    def compose(self) -> ComposeResult:
        yield from self.compose_top()
        yield TextLines(id="title")
        yield TextLines(id="headline")
        yield self._table
        yield TextLines(id="evidence")
        yield Footer()

    @property
    def demand(self) -> Demand:
        """The ranks of the job in detail."""
        devices = () if self._state is None else self._state.frame.devices
        keys = frozenset(device.key for device in devices)
        return Demand(process_keys=keys, jobs=True, job_key=self._report.key)

    def show(self, state: ViewState) -> None:
        """Draw the job; when it is over, its last state."""
        self._state = state
        report = state.jobs.report(self._report.key)
        self._is_gone = report is None
        self._report = report or self._report
        width, height = self.size
        title, details = job_title(self._report)
        is_low = height < _MIN_HEIGHT
        with self.app.batch_update():
            details = "is over; last values" if self._is_gone else details
            self.query_one("#title", TextLines).show([title_line(title, details, width)])
            lines = headline_lines(self._report, width, _LOW_HEADLINE_LINES if is_low else _HEADLINE_LINES)
            self.query_one("#headline", TextLines).show(lines)
            self._table.show(RANK_COLUMNS, self._report.ranks, "All ranks of this job have ended.")
            lines = [] if is_low else evidence_lines(self._report, width, int(height * _EVIDENCE_SHARE))
            self.query_one("#evidence", TextLines).show(lines)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the key for what only this host can observe."""
        if action in {"why", "save"}:
            return self._state is None or self._state.is_this_host
        return super().check_action(action, parameters)

    def action_why(self) -> None:
        rank = self._table.selected
        if rank is None or rank.pid is None or rank.host != THIS_HOST:
            self.notify("gpumon observes the ranks of this host only.", severity="warning", markup=False)
        else:
            self.app.push_screen(WhyScreen(rank.pid))

    def action_save(self) -> None:
        """Write the files for a bug report in the background: the ranks are asked for their stacks."""
        frames = () if self._state is None else self._state.jobs.frames
        folder = Path(f"gpumon-jobs-{file_stamp()}")
        self.notify("Reading the stacks of all ranks ...")
        self.in_background(partial(_save, folder, frames), self._report_saved)

    def _report_saved(self, result: "DumpResult | CommandError") -> None:
        """Show what was written, or why it could not be."""
        if isinstance(result, CommandError):
            self.notify(str(result), severity="error", markup=False)
        else:
            self.notify(f"Saved {result.folder}: {', '.join(result.files)}. {result.removed}", markup=False)

    @on(LineTable.RowChosen)
    def open_process(self, chosen: LineTable.RowChosen) -> None:
        """Open the process of the rank, if it uses a GPU."""
        rank = self._table.row(chosen.key)
        if rank is None or rank.process is None or self._state is None:
            self.notify("This rank uses no GPU of this host.", severity="warning", markup=False)
            return
        labels = {gpu.label for gpu in rank.gpus}
        device = next((device for device in self._state.frame.devices if device.label in labels), None)
        if device is not None:
            self.app.push_screen(ProcessScreen(device.key, rank.process.pid))


def _save(folder: Path, frames: Sequence[Frame]) -> "DumpResult | CommandError":
    """Write the files, in a thread."""
    from gpumon.operations.training_jobs.dump import dump_jobs  # late: few sessions save a job

    try:
        return dump_jobs(folder, frames=frames)
    except CommandError as error:
        return error
