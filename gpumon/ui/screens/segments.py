"""What PyTorch's memory is cut into in one process: the map of its segments, asked for when it is opened."""

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer

from gpumon.core.holes import SegmentLayout
from gpumon.core.model import Device
from gpumon.core.units import duration_text
from gpumon.operations.probed import Owner
from gpumon.probe.news import Answer, Ask, SegmentMap
from gpumon.ui.messages import SceneWanted
from gpumon.ui.paint.line import Line, Role, Span, cut
from gpumon.ui.probes import ProbeBoard
from gpumon.ui.scene import Scene
from gpumon.ui.screens.allocator_summary import AllocatorSummaryScreen
from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.view.around import title_line
from gpumon.ui.view.memory_words import waiting_words, who_text
from gpumon.ui.view.segments import heading_line, segment_rows, summary_lines
from gpumon.ui.widgets.line_table import MARGIN, LaterRow, LineTable, TableRow
from gpumon.ui.widgets.text_line import TextLines

_MILLISECONDS: Final = 1000
_SHORT_SECONDS: Final = 10.0


class SegmentsScreen(DrawnScreen[None]):
    """The segments of one process on one GPU.

    Args:
        board: The probes.
        owner: The process, with what its allocator said of the GPU.
        device: The GPU.
    """

    AUTO_FOCUS: ClassVar[str] = "#segments"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left,h,s", "app.pop_screen", "Back", id="segments.back", tooltip="Back to the GPU's memory"),
        Binding("r", "read", "Read again", id="segments.read", tooltip="Ask the process again"),
        Binding("m", "summary", "Summary", id="segments.summary", tooltip="All that memory_summary() says"),
    ]

    def __init__(self, board: ProbeBoard, owner: Owner, device: Device) -> None:
        super().__init__()
        assert owner.statistics is not None
        self.layout_shown: SegmentLayout | None = None
        """What is shown, or None while nothing has come."""
        self._board = board
        self._owner = owner
        self._ordinal = owner.statistics.ordinal
        self._title = f"Segments of {who_text(owner)} on GPU {device.label}"
        self._rows: list[TableRow | LaterRow] = []
        self._rows_of: tuple[SegmentLayout | None, int] = (None, 0)
        self._told: SegmentMap | None = None
        self._told_at = 0.0
        self._asked_at: float | None = None
        self._problem = ""

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield TextLines(id="state")
        yield TextLines(id="summary")
        yield TextLines(id="segments-heading")
        yield LineTable(id="segments", choosable=False)
        yield Footer()

    def on_mount(self) -> None:
        """Asks at once."""
        super().on_mount()
        self.action_read()

    def show(self, scene: Scene) -> None:
        """Draws what the process told last."""
        width = self.size.width
        shown = self.layout_shown
        with self.app.batch_update():
            self._lines("title").show([title_line(self._title, "", scene, width)])
            self._lines("state").show([self._state(width)])
            self._lines("summary").show([] if shown is None else summary_lines(shown, width))
            self._lines("segments-heading").show([] if shown is None else [heading_line(width)])
            self.query_one("#segments", LineTable).show(self._rows_for(shown, width - MARGIN - 1))

    def _rows_for(self, shown: SegmentLayout | None, width: int) -> list[TableRow | LaterRow]:
        """The rows, which are made once for a map and a width: of thousands of blocks every moment has the same."""
        if self._rows_of != (shown, width):
            self._rows_of = (shown, width)
            self._rows = [] if shown is None else list(segment_rows(shown, width))
        return self._rows

    def _state(self, width: int) -> Line:
        """How old the map is, what it cost and whether it is whole; or what is waited for."""
        parts: list[Span] = []
        if self._asked_at is not None:
            parts.append(Span(f" {waiting_words(self._board.clock() - self._asked_at)}"))
        elif self._problem:
            parts.append(Span(f" ! {self._problem}", Role.WARNING))
        if self._told is not None:
            if self._told.is_cut:
                parts.append(Span(" ! There are more blocks than are sent: the rest is missing.", Role.WARNING))
            seconds = self._board.clock() - self._told_at
            age = "just now" if seconds < _SHORT_SECONDS else f"{duration_text(seconds)} ago"
            took = f"{self._told.seconds * _MILLISECONDS:.0f} ms"
            parts.append(Span(f" Read {age}; it held the process up for {took}.", Role.DIM))
        return cut(parts, width)

    def action_read(self) -> None:
        """Asks, unless it has been asked and has not answered yet."""
        if self._asked_at is None:
            self._asked_at = self._board.clock()
            self._board.ask(self._owner.pid, Ask.SEGMENTS, self._take)
            self.post_message(SceneWanted())

    def action_summary(self) -> None:
        self.app.push_screen(AllocatorSummaryScreen(self._board, self._owner))

    def _take(self, answer: Answer) -> None:
        """It has answered; the screen may have been closed meanwhile."""
        self._asked_at = None
        self._problem = "" if answer.problem is None else str(answer.problem)
        if isinstance(answer.result, SegmentMap):
            self._told, self._told_at = answer.result, self._board.clock()
            self.layout_shown = SegmentLayout(answer.result.segments, self._ordinal)
        if self.is_attached:
            self.post_message(SceneWanted())

    def _lines(self, name: str) -> TextLines:
        return self.query_one(f"#{name}", TextLines)
