"""Why a process ran out of memory, from the file that its probe has left."""

from pathlib import Path
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer

from gpumon.core.exits import CommandError
from gpumon.diagnosis.explain import explain_source
from gpumon.diagnosis.explanation import Explanation
from gpumon.diagnosis.source import log_pieces, open_log
from gpumon.operations.evidence import DRIVER_FILES, with_evidence
from gpumon.ui.messages import SceneWanted
from gpumon.ui.paint.line import Line, Role, Span, line
from gpumon.ui.paint.text import wrapped
from gpumon.ui.probes import OutOfMemory
from gpumon.ui.scene import Scene
from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.view.around import title_line
from gpumon.ui.view.explain import explanation_lines, reading_lines
from gpumon.ui.widgets.line_table import LineTable, TableRow
from gpumon.ui.widgets.text_line import TextLines
from gpumon.ui.workshop import Workshop

_REMEDY: Final = "Of the files that probes leave the newest ten are kept."


class OomScreen(DrawnScreen[None]):
    """The explanation of one file, which is read in the background.

    Args:
        workshop: What works in the background.
        ran_out: What happened.
    """

    AUTO_FOCUS: ClassVar[str] = "#meaning"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left,h,o", "app.pop_screen", "Back", id="oom.back", tooltip="Back to the GPU's memory"),
    ]

    def __init__(self, workshop: Workshop, ran_out: OutOfMemory) -> None:
        super().__init__()
        self.found: Explanation | str | None = None
        """What the file means, why it cannot be read, or None while it is read."""
        self._workshop = workshop
        self._ran_out = ran_out

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield LineTable(id="meaning", choosable=False)
        yield Footer()

    def on_mount(self) -> None:
        """Has the file read."""
        super().on_mount()
        path = self._ran_out.path
        self._workshop.in_background(lambda: explained(path), self._take)

    def show(self, scene: Scene) -> None:
        """Draws the explanation that there is, or that it is being looked for."""
        room = max(1, self.size.width - 2)
        title = title_line(f"Why PID {self._ran_out.pid} ran out of memory", "", scene, self.size.width)
        with self.app.batch_update():
            self.query_one("#title", TextLines).show([title])
            rows = [TableRow(str(number), each) for number, each in enumerate(self._lines(room))]
            self.query_one("#meaning", LineTable).show(rows)

    def _lines(self, room: int) -> list[Line]:
        if self.found is None:
            return reading_lines(room)
        if isinstance(self.found, str):
            return [line(Span(each, Role.WARNING)) for each in wrapped(f"! {self.found}", room)]
        return [*explanation_lines(self.found, room), (), line(Span(f"From {self._ran_out.path}", Role.DIM))]

    def _take(self, found: Explanation | str) -> None:
        """It was read, or this machine was asked besides; the screen may have been closed meanwhile."""
        is_first = self.found is None
        self.found = found
        if not self.is_attached:
            return
        self.post_message(SceneWanted())
        if is_first and isinstance(found, Explanation) and DRIVER_FILES.exists():
            self._workshop.in_background(lambda: with_evidence(found), self._take)


def explained(path: str) -> Explanation | str:
    """What a file means, or why it cannot be read."""
    try:
        with open_log(Path(path)) as opened:
            return explain_source(log_pieces(opened, path), path)
    except CommandError as error:
        return f"{error.problem.reason} {_REMEDY}"
