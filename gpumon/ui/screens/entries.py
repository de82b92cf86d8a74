"""What screens of entries share: a title, a table of labels and values, and all that is said about one of them."""

from collections.abc import Iterable
from typing import TypeVar

from textual import on
from textual.app import ComposeResult
from textual.widgets import Footer, Static

from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.view.entries import Entry, entry_line
from gpumon.ui.widgets.line_table import LineTable, TableRow
from gpumon.ui.widgets.text_line import TextLines

ResultT = TypeVar("ResultT")


class EntriesScreen(DrawnScreen[ResultT]):
    """A title, a table of entries, and the note of the entry under the cursor."""

    def __init__(self) -> None:
        super().__init__()
        self._notes: list[str] = []

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield from self.compose_above()
        yield LineTable(id="details", choosable=False)
        yield Static(id="note", markup=False)
        yield Footer()

    def compose_above(self) -> ComposeResult:
        """What stands between the title and the table."""
        return ()

    def show_entries(self, entries: Iterable[Entry]) -> None:
        """Shows the entries in place of those before."""
        rows, self._notes = [], []
        for label, value, note in entries:
            self._notes.append(note)
            rows.append(TableRow(label, entry_line(label, value, note, self.size.width)))
        self.query_one("#details", LineTable).show(rows)
        self.show_note()

    @on(LineTable.CursorMoved)
    def show_note(self) -> None:
        """Shows all of what is said about the row under the cursor, which the row itself may have no room for."""
        cursor = self.query_one("#details", LineTable).cursor
        note = self._notes[cursor] if cursor < len(self._notes) else ""
        static = self.query_one("#note", Static)
        if static.content != note:
            static.update(note, layout=False)
