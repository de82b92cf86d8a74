"""Long text of a run that scrolls: its log, and torch's own summary of its memory."""

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Footer

from gpumon.ui.jobs import BoardRun
from gpumon.ui.paint.line import Role, Span, line
from gpumon.ui.scene import Scene
from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.view.around import title_line
from gpumon.ui.view.run import title_text
from gpumon.ui.widgets.line_table import LineTable, TableRow
from gpumon.ui.widgets.text_line import TextLines

_BOTTOM = 1 << 30


class LinesScreen(DrawnScreen[None]):
    """Lines of a run.

    Args:
        entry: The run.
    """

    WHAT: ClassVar[str] = ""
    NOTHING: ClassVar[str] = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left,h", "app.pop_screen", "Back", id="lines.back", tooltip="Back to the run"),
    ]

    def __init__(self, entry: BoardRun) -> None:
        super().__init__()
        self._entry = entry

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield LineTable(id="lines", choosable=False)
        yield Footer()

    def lines(self, width: int) -> Iterator[TableRow]:
        """What is shown, in lines of a width."""
        raise NotImplementedError

    def show(self, scene: Scene) -> None:
        """Draws the lines; a reader at their end stays there when there are more."""
        title = f"{self.WHAT} of {title_text(self._entry)}"
        self.query_one("#title", TextLines).show([title_line(title, "", scene, self.size.width)])
        table = self.query_one("#lines", LineTable)
        at_end = table.cursor == len(table.rows) - 1
        rows = list(self.lines(max(1, self.size.width - 2))) or [TableRow("", line(Span(self.NOTHING, Role.DIM)))]
        table.show(rows)
        if at_end and self.follows:
            table.action_move(_BOTTOM)

    @property
    def follows(self) -> bool:
        """Whether what is new comes at the end."""
        return False


class LogScreen(LinesScreen):
    """What a workload has printed."""

    WHAT = "Log"
    NOTHING = "It has printed nothing."

    @property
    def follows(self) -> bool:
        return True

    def lines(self, width: int) -> Iterator[TableRow]:
        printed = list(self._entry.run.job.log)
        for number, entry in enumerate(printed):
            mark, role = ("! ", Role.WARNING) if entry.stream == "stderr" else ("  ", Role.PLAIN)
            for start in range(0, max(1, len(entry.text)), max(1, width - 2)):
                piece = entry.text[start : start + max(1, width - 2)]
                yield TableRow(f"{number}/{start}", line(Span(mark, role), piece))


class MemoryScreen(LinesScreen):
    """``torch.cuda.memory_summary()`` in full."""

    WHAT = "Memory"
    NOTHING = "torch has no summary of its memory: there is one only on a GPU, once its allocator is in use."

    def lines(self, width: int) -> Iterator[TableRow]:  # noqa: ARG002 - torch has laid it out
        for number, text in enumerate((self._entry.run.state.memory_summary or "").splitlines()):
            yield TableRow(str(number), line(text))
