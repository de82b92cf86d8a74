"""Choices: columns and notices with a tick each, the column to sort by, and the theme."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical

from gpumon.core.model import Frame
from gpumon.present.paint.line import Role, Span, clipped, line
from gpumon.present.paint.table import Column, TableRow
from gpumon.present.table_state import sort_letters, sort_line, sort_marks, sorted_by, visible_columns
from gpumon.session.table_memory import TableState
from gpumon.session.wait_registry import WaitChoice
from gpumon.ui.keymap import Bindings, key
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

    BINDINGS: ClassVar[Bindings] = [key("ticks.open", "Select", "Set or remove the tick", "choose")]


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
    BINDINGS: ClassVar[Bindings] = [key("ticks.back", "Done", "Apply the choice, and go back", "done")]

    LABEL_WIDTH: ClassVar[int] = 24
    """Cells of the labels; the rest of a line is for the notes."""

    def __init__(self, title: str, chosen: Sequence[str]) -> None:
        super().__init__()
        self.chosen = list(chosen)
        self.max_chosen: float = math.inf
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
        self._lines("choice-title").show([line(Span(self._title.ljust(width), Role.HEADING))])
        table.show(rows)

    @on(LineTable.RowChosen)
    def toggle(self, chosen: LineTable.RowChosen) -> None:
        """Set or remove a tick."""
        if chosen.key in self.chosen:
            self.chosen.remove(chosen.key)
        elif len(self.chosen) < self.max_chosen:
            self.chosen.append(chosen.key)
        else:
            self.query_one(Footer).say(f"At most {self.max_chosen}: remove a tick first")
        self.draw()

    def action_done(self) -> None:
        self.dismiss(self.result())


class ColumnChoiceScreen(ChoiceScreen[TableState]):
    """Every column of a table with a tick. The result is the table's new state.

    Args:
        columns: All columns that the table can have.
        state: How the table is arranged now.
    """

    BINDINGS: ClassVar[Bindings] = [key("columns.sort", "Sort", "Sort by this column; again for the other direction")]

    def __init__(self, columns: Sequence[Column[Any]], state: TableState) -> None:
        super().__init__("Columns", [column.id for column in visible_columns(columns, state)])
        self._columns = columns
        self._state = state

    def on_resize(self, _: events.Resize) -> None:
        """Draw again: the notes have a fixed width."""
        self.draw()

    def choices(self) -> Sequence[TickItem]:
        """The columns in the order of the table; the note says which names a filter knows."""
        marks = sort_marks(self._state)
        return [
            TickItem(
                column.id,
                f"{column.title(column.width)} {marks.get(column.id, '')}",
                f"filter: {', '.join((column.id, *column.aliases))}",
            )
            for column in self._columns
        ]

    def result(self) -> TableState:
        """The state with the ticked columns; without any tick, and with those of the default, the default columns."""
        chosen = tuple(column.id for column in self._columns if column.id in self.chosen)
        default = tuple(column.id for column in visible_columns(self._columns, TableState()))
        return self._state._replace(columns=() if chosen == default else chosen)

    def action_sort(self) -> None:
        table = self.query_one("#choices", LineTable)
        self._state = sorted_by(self._state, self._columns, table.rows[table.cursor].key)
        self.draw()


class NotifyWhenDialog(ChoiceScreen[Sequence[WaitChoice]]):
    """What gpumon can notify the user of; the result is what to wait for.

    Args:
        choices: What can be waited for.
        armed: What is waited for now; it is listed, too, so that it can be canceled.
        frame: The moment, which shows what is true already.
    """

    LABEL_WIDTH: ClassVar[int] = 42

    def __init__(self, choices: Sequence[WaitChoice], armed: Sequence[WaitChoice], frame: Frame) -> None:
        super().__init__("Notify me when …", [choice.id for choice in armed])
        self._all = {choice.id: choice for choice in (*choices, *armed)}
        self._true_now = {choice.id for choice in self._all.values() if choice.is_true(frame) is not None}
        self._armed = {choice.id for choice in armed}

    def choices(self) -> Sequence[TickItem]:
        return [TickItem(choice.id, choice.label, self._note(choice.id)) for choice in self._all.values()]

    def result(self) -> Sequence[WaitChoice]:
        return [self._all[chosen] for chosen in self.chosen]

    def _note(self, choice_id: str) -> str:
        if choice_id in self._armed:
            return "waiting"
        return "true now" if choice_id in self._true_now else ""


class SortPicker(BaseModalScreen[str]):
    """One line in the place of the footer: a letter for each column. The result is the id of a column, or None.

    Args:
        columns: The columns that can be sorted.
        state: How the table is arranged now.
    """

    DEFAULT_CSS = "SortPicker { align: left bottom; TextLines { background: $panel; } }"
    BINDINGS: ClassVar[Bindings] = [
        key("sort-picker.back", "Cancel", "Keep the order", "dismiss"),
        key("sort-picker.sort", "Unsorted", "The natural order", "dismiss('')"),
    ]

    def __init__(self, columns: Sequence[Column[Any]], state: TableState) -> None:
        super().__init__()
        self._letters = sort_letters(columns)
        self._state = state

    def compose(self) -> ComposeResult:
        yield TextLines(id="sort-line")

    def on_mount(self) -> None:
        self.query_one(TextLines).show([sort_line(self._letters, self._state, self.app.size.width)])

    def on_key(self, event: events.Key) -> None:
        """Choose the column of a letter."""
        column = self._letters.get(event.character or "")
        if column is not None:
            event.stop()
            self.dismiss(column.id)


class ThemePicker(BaseModalScreen[None]):
    """The themes; the one under the cursor is shown at once."""

    AUTO_FOCUS: ClassVar[str] = "#themes"
    DEFAULT_CSS = """
    ThemePicker {
        align: right top;
        #themes { width: 24; height: auto; max-height: 100%; background: $surface; }
    }
    """
    BINDINGS: ClassVar[Bindings] = [
        key("theme-picker.theme", "Next", "Next theme", "next"),
        key("theme-picker.back", "Cancel", "Keep the theme of before", "restore"),
    ]

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._names = names
        self._before = ""

    def compose(self) -> ComposeResult:
        yield LineTable(id="themes")
        yield Footer()

    def on_mount(self) -> None:
        """List the themes, with the cursor on the next one."""
        self._before = self.app.theme
        table = self.query_one(LineTable)
        table.show([TableRow(name, line(name)) for name in self._names])
        table.cursor = self._names.index(self._before)
        self.action_next()

    @on(LineTable.CursorMoved)
    def preview(self) -> None:
        """Show the theme under the cursor."""
        self.app.theme = self._names[self.query_one(LineTable).cursor]

    @on(LineTable.RowChosen)
    def keep(self) -> None:
        """Keep the theme that is shown."""
        self.dismiss()

    def action_next(self) -> None:
        table = self.query_one(LineTable)
        table.cursor = (table.cursor + 1) % len(self._names)

    def action_restore(self) -> None:
        self.app.theme = self._before
        self.dismiss()
