"""A list of things with a tick each: what is chosen of them is the result."""

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from gpumon.present.paint.line import Role, Span, clipped, line
from gpumon.present.paint.table import TableRow
from gpumon.ui.screens.base import BaseModalScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import LineTable
from gpumon.ui.widgets.text_lines import TextLines

ChosenT = TypeVar("ChosenT")
_FRAME: Final = 4
"""Cells of a line outside of its text: the cursor, the scroll bar and the padding."""


class TickItem(NamedTuple):
    """A thing that can be chosen.

    Attributes:
        id: Identifies it.
        label: Its name.
        note: What the line shows at its right.
    """

    id: str
    label: str
    note: str = ""


class TickTable(LineTable, inherit_bindings=True):
    """Rows with a tick."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "Select", id="ticks.open", tooltip="Set or remove the tick"),
    ]


class ChoiceScreen(BaseModalScreen[ChosenT]):
    """A dialog with a list of ticks. A subclass defines the choices and the result.

    Args:
        title: The heading.
        chosen: Ids of what is chosen, in the order of choosing.
    """

    AUTO_FOCUS: ClassVar[str] = "#choices"
    DEFAULT_CSS = """
    ChoiceScreen {
        align: center middle;
        #choice-box { width: 64; max-width: 100%; max-height: 100%; height: auto; padding: 0; }
        LineTable { height: auto; max-height: 100%; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "done", "Done", id="ticks.back", tooltip="Apply the choice, and go back"),
    ]

    LABEL_WIDTH: ClassVar[int] = 24
    """Cells of the labels; the rest of a line is for the notes."""

    def __init__(self, title: str, chosen: Sequence[str]) -> None:
        super().__init__()
        self.chosen = list(chosen)
        self._title = title

    def choices(self) -> Sequence[TickItem]:
        """What can be chosen, in the order of the list."""
        raise NotImplementedError

    def result(self) -> ChosenT:
        """The result of the dialog."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        with Vertical(id="choice-box"):
            yield TextLines(id="choice-title")
            yield TickTable(id="choices")
        yield Footer()

    def on_mount(self) -> None:
        self.draw()

    def draw(self) -> None:
        """Draw the list."""
        width = max(1, self.query_one("#choice-box").content_size.width or self.app.size.width)
        choices = self.choices()
        rows = []
        for choice in choices:
            tick = "x" if choice.id in self.chosen else " "
            text = f"[{tick}] {clipped(choice.label, self.LABEL_WIDTH):<{self.LABEL_WIDTH}} "
            note = clipped(choice.note, max(0, width - len(text) - _FRAME))
            rows.append(TableRow(choice.id, line(text, Span(note, Role.DIM))))
        table = self.query_one("#choices", LineTable)
        table.styles.height = max(1, min(len(rows), self.app.size.height - 2))
        self.query_one("#choice-title", TextLines).show([line(Span(self._title.ljust(width), Role.HEADING))])
        table.show(rows)

    @on(LineTable.RowChosen)
    def toggle(self, chosen: LineTable.RowChosen) -> None:
        """Set or remove a tick."""
        if chosen.key in self.chosen:
            self.chosen.remove(chosen.key)
        else:
            self.chosen.append(chosen.key)
        self.draw()

    def action_done(self) -> None:
        self.dismiss(self.result())
