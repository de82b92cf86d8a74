"""The base of screens of entries: a title, a table of labels and values, and the note of the selected entry."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from textual import on
from textual.app import ComposeResult
from textual.widgets import Static

from gpumon.present.entries import Entry, entry_line
from gpumon.present.paint.table import TableRow
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.line_table import LineTable

ResultT = TypeVar("ResultT")
NotedRow = tuple[TableRow, str]


class EntriesScreen(ViewScreen[ResultT]):
    """A title, a table of entries, and the note of the entry under the cursor."""

    def __init__(self) -> None:
        super().__init__()
        self._notes: list[str] = []

    def compose(self) -> ComposeResult:
        yield from self.compose_top("title")
        yield from self.compose_above()
        yield LineTable(id="details", choosable=False)
        yield from self.compose_below()
        yield Static(id="note", markup=False)
        yield Footer()

    def compose_above(self) -> ComposeResult:
        """The widgets between the title and the table."""
        return ()

    def compose_below(self) -> ComposeResult:
        """The widgets between the table and the note."""
        return ()

    def show_entries(self, entries: Iterable[Entry]) -> None:
        """Replaces the entries."""
        self.show_rows(self.rows_of(entries))

    def rows_of(self, entries: Iterable[Entry]) -> Iterator[NotedRow]:
        """The entries as rows, each with its note."""
        width = self.size.width
        for label, value, note in entries:
            yield TableRow(label, entry_line(label, value, note, width)), note

    def show_rows(self, rows: Iterable[NotedRow]) -> None:
        """Replaces the rows."""
        noted = list(rows)
        self._notes = [note for _, note in noted]
        self.query_one("#details", LineTable).show([row for row, _ in noted])
        self.show_note()

    @on(LineTable.CursorMoved)
    def show_note(self) -> None:
        """Shows the complete note of the row under the cursor, for which the row itself may have no room."""
        static, note = self.query_one("#note", Static), self.note
        if static.content != note:
            static.update(note, layout=False)

    @property
    def note(self) -> str:
        """The note of the selected row."""
        cursor = self.query_one("#details", LineTable).cursor
        return self._notes[cursor] if cursor < len(self._notes) else ""
