"""One training job: the verdict in a sentence, a row for each rank, and what speaks for the verdict."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from textual import on
from textual.app import ComposeResult

from gpumon.core.model import Frame
from gpumon.core.units import file_stamp
from gpumon.operations.training_jobs.report import THIS_HOST, RankReport, TrainingJobReport
from gpumon.present.jobs import evidence_lines, headline_lines, job_title
from gpumon.present.ranks import RANK_COLUMNS
from gpumon.session.app_session import Demand
from gpumon.session.view_state import ViewState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.screens.process import ProcessScreen
from gpumon.ui.screens.why import WhyScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.table_view import TableView
from gpumon.ui.widgets.text_lines import TextLines

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
    BINDINGS: ClassVar[Bindings] = [
        key("job.why", "Why slow", "Why the rank under the cursor is slow"),
        key("job.save", "Save", "Save what is known of the jobs for a bug report"),
    ]

    def __init__(self, report: TrainingJobReport) -> None:
        super().__init__()
        self._report = report
        self._state: ViewState | None = None
        self._table = TableView[RankReport](LineTable(id="ranks"), lambda rank: rank.key)

    def compose(self) -> ComposeResult:
        yield from self.compose_top("title", "headline")
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
        self._report = report or self._report
        width, height = self.size
        title, details = job_title(self._report)
        is_low = height < _MIN_HEIGHT
        self.show_title(title, "is over; last values" if report is None else details)
        lines = headline_lines(self._report, width, _LOW_HEADLINE_LINES if is_low else _HEADLINE_LINES)
        self._lines("headline").show(lines)
        self._table.show(RANK_COLUMNS, self._report.ranks, "All ranks of this job have ended.")
        lines = [] if is_low else evidence_lines(self._report, width, int(height * _EVIDENCE_SHARE))
        self._lines("evidence").show(lines)

    def conditions(self) -> Mapping[str, bool]:
        is_here = self._state is None or self._state.is_this_host
        return {"why": is_here, "save": is_here}

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
        self.attempt(partial(_save, folder, frames), self.report_saved)

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


def _save(folder: Path, frames: Sequence[Frame]) -> str:
    """Write the files, in a thread; returns what was written.

    Raises:
        CommandError: They cannot be written.
    """
    from gpumon.operations.training_jobs.dump import dump_jobs  # late: few sessions save a job

    result = dump_jobs(folder, frames=frames)
    return f"{result.folder}: {', '.join(result.files)}. {result.removed}"
