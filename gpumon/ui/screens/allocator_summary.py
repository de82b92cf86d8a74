"""``torch.cuda.memory_summary()`` of a process that a probe runs in, in full."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer

from gpumon.operations.probed import Owner
from gpumon.probe.news import Answer, Ask
from gpumon.ui.messages import SceneWanted
from gpumon.ui.paint.line import Role, Span, line
from gpumon.ui.probes import ProbeBoard
from gpumon.ui.scene import Scene
from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.view.around import title_line
from gpumon.ui.view.memory_words import waiting_words, who_text
from gpumon.ui.widgets.line_table import LineTable, TableRow
from gpumon.ui.widgets.text_line import TextLines


class AllocatorSummaryScreen(DrawnScreen[None]):
    """The text as the process made it when it was asked.

    Args:
        board: The probes.
        owner: The process, with what its allocator said of the GPU.
    """

    AUTO_FOCUS: ClassVar[str] = "#lines"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left,h,m", "app.pop_screen", "Back", id="summary.back", tooltip="Back to the segments"),
        Binding("r", "read", "Read again", id="summary.read", tooltip="Ask the process again"),
    ]

    def __init__(self, board: ProbeBoard, owner: Owner) -> None:
        super().__init__()
        assert owner.statistics is not None
        self._board = board
        self._owner = owner
        self._ordinal = owner.statistics.ordinal
        self._text = ""
        self._problem = ""
        self._asked_at: float | None = None

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield LineTable(id="lines", choosable=False)
        yield Footer()

    def on_mount(self) -> None:
        """Asks at once."""
        super().on_mount()
        self.action_read()

    def show(self, scene: Scene) -> None:
        """Draws the text that came last, or what is waited for."""
        said, role = self._text, Role.PLAIN
        if self._problem:
            said, role = f"! {self._problem}", Role.WARNING
        elif not said and self._asked_at is not None:
            said, role = waiting_words(self._board.clock() - self._asked_at), Role.DIM
        title = title_line(f"memory_summary() of {who_text(self._owner)}", "", scene, self.size.width)
        rows = [TableRow(str(number), line(Span(text, role))) for number, text in enumerate(said.splitlines())]
        with self.app.batch_update():
            self.query_one("#title", TextLines).show([title])
            self.query_one("#lines", LineTable).show(rows)

    def action_read(self) -> None:
        """Asks, unless it has been asked and has not answered yet."""
        if self._asked_at is None:
            self._asked_at = self._board.clock()
            self._board.ask(self._owner.pid, Ask.SUMMARY, self._take, ordinal=self._ordinal)
            self.post_message(SceneWanted())

    def _take(self, answer: Answer) -> None:
        """It has answered; the screen may have been closed meanwhile."""
        self._asked_at = None
        self._problem = "" if answer.problem is None else str(answer.problem)
        if isinstance(answer.result, str):
            self._text = answer.result
        if self.is_attached:
            self.post_message(SceneWanted())
