"""What screens of entries share: a title, a table of labels and values, and all that is said about one of them."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from textual import on
from textual.app import ComposeResult
from textual.widgets import Footer, Static

from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.view.entries import Entry, entry_line
from gpumon.ui.widgets.line_table import LineTable, TableRow
from gpumon.ui.widgets.text_line import TextLines

ResultT = TypeVar("ResultT")
NotedRow = tuple[TableRow, str]


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
        self.show_rows(self.rows_of(entries))

    def rows_of(self, entries: Iterable[Entry]) -> Iterator[NotedRow]:
        """The entries as rows, each with its note."""
        width = self.size.width
        for label, value, note in entries:
            yield TableRow(label, entry_line(label, value, note, width)), note

    def show_rows(self, rows: Iterable[NotedRow]) -> None:
        """Shows the rows in place of those before."""
        noted = list(rows)
        self._notes = [note for _, note in noted]
        self.query_one("#details", LineTable).show([row for row, _ in noted])
        self.show_note()

    @on(LineTable.CursorMoved)
    def show_note(self) -> None:
        """Shows all of what is said about the row under the cursor, which the row itself may have no room for."""
        cursor = self.query_one("#details", LineTable).cursor
        note = self._notes[cursor] if cursor < len(self._notes) else ""
        static = self.query_one("#note", Static)
        if static.content != note:
            static.update(note, layout=False)
