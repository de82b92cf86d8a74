"""A table with headings, which is sorted, filtered and shown in chosen columns in the same way on every screen."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final, Generic

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from gpumon.core.units import MISSING
from gpumon.present.paint.line import Line, Role, Span, clipped, line, plain
from gpumon.present.paint.table import (
    Column,
    LazyRows,
    PlacedColumn,
    RowT,
    TableRow,
    column_at,
    headings,
    row_line,
    scrolled_columns,
)
from gpumon.present.table_state import TableRows, columns_for, sort_marks, sorted_by, visible_columns
from gpumon.session.table_memory import TableState
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.messages import AppMessage, ViewStateRequested
from gpumon.ui.widgets.filter_bar import FilterBar
from gpumon.ui.widgets.line_table import MARGIN, LineTable
from gpumon.ui.widgets.text_lines import TextLines

_SCROLL_BAR: Final = 1
"""Cells kept free at the right, so that nothing moves when the scroll bar appears."""


class HeadingLine(TextLines):
    """The headings of a table; a click on one sorts by it."""

    class Clicked(Message):
        """A cell of the line was clicked.

        Args:
            x: The cell, counted from the left end of the line.
        """

        def __init__(self, x: int) -> None:
            super().__init__()
            self.x = x

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Clicked(event.x))


class TableView(Vertical, Generic[RowT]):
    """Headings, a filter, and the rows in a `LineTable`, whose messages pass through.

    The table's id names it in the configuration; the view's own id is that id with ``-view``.

    Args:
        table: Draws the rows.
        key_of: Returns what identifies a row over time.
        make_line: Draws a row in the columns.
        copied: Returns the text of a row that is copied; by default those of its visible columns.
    """

    DEFAULT_CSS = "TableView { height: 1fr; width: 1fr; }"
    BINDINGS: ClassVar[Bindings] = [
        key("table.filter", "Filter", "Show only the rows that match what you type"),
        key("table.sort", "Sort", "Choose the column to sort by; a click on it sorts, too"),
        key("table.sort-memory", "Memory", "Sort by memory", "sort_by('memory')", show=False),
        key("table.sort-use", "Use", "Sort by utilization", "sort_by('sm', 'util')", show=False),
        key("table.choose", "Columns", "Choose the columns of the table", "columns"),
        key("table.columns-left", "Left", "Columns at the left of a wide table", "scroll_columns(-1)", show=False),
        key("table.columns-right", "Right", "Columns at the right of a wide table", "scroll_columns(1)", show=False),
    ]

    class StateRequested(AppMessage):
        """A table was opened: `restore` may be called with the state that was kept for it."""

        def __init__(self, view: "TableView[Any]") -> None:
            super().__init__()
            self.view = view

    class StateChanged(AppMessage):
        """The user has sorted or filtered a table, or chosen its columns."""

        def __init__(self, table_id: str, state: TableState) -> None:
            super().__init__()
            self.table_id = table_id
            self.state = state

    def __init__(
        self,
        table: LineTable,
        key_of: Callable[[RowT], str],
        make_line: Callable[[Sequence[PlacedColumn[RowT]], RowT], Line] = row_line,
        copied: Callable[[RowT], str] | None = None,
    ) -> None:
        super().__init__(id=f"{table.id}-view")
        self.table = table
        self.table.text_of_row = self._text_of_row  # type: ignore[method-assign]  # bars are drawn, not copied
        self._copied = copied
        self.state = TableState()
        self._headings = HeadingLine()
        self._bar = FilterBar()
        self._key_of = key_of
        self._make_line = make_line
        self._given: Sequence[Column[RowT]] = ()
        """The columns as the screen passed them: `columns_for` the rows makes those that are shown."""
        self._columns: Sequence[Column[RowT]] = ()
        self._placed: Sequence[PlacedColumn[RowT]] = ()
        self._placed_for: tuple[object, ...] = ()
        """What the columns were placed for."""
        self._all_rows: TableRows[RowT] = TableRows((), ())
        self._rows: Sequence[RowT] = ()
        self._scrolled = 0
        """Columns after the first one that are left out, because the user scrolled to those at their right."""
        self._has_more = False
        self._empty = ""
        self.regroup: Callable[[Sequence[RowT]], Sequence[RowT]] = lambda rows: rows
        """Applied to the rows after they were filtered and sorted."""
        self._frame_height = 1

    def compose(self) -> ComposeResult:
        yield self._headings
        yield self._bar
        yield self.table

    def on_mount(self) -> None:
        self.post_message(self.StateRequested(self))

    @property
    def table_id(self) -> str:
        """Names the table in the configuration."""
        return self.table.id or ""

    @property
    def selected(self) -> RowT | None:
        """The row under the cursor; None if no row is shown."""
        return self._rows[self.table.cursor] if self.table.cursor < len(self._rows) else None

    @property
    def frame_height(self) -> int:
        """Lines that the view needs in addition to its rows."""
        return 1 + self._bar.is_open

    def row(self, key: str) -> RowT | None:
        """The shown row with a key."""
        return next((row for row in self._rows if self._key_of(row) == key), None)

    def show(self, columns: Sequence[Column[RowT]], rows: Sequence[RowT], empty: str = "") -> None:
        """Replace the rows.

        Args:
            columns: All columns that the table can have.
            rows: All rows in their natural order.
            empty: What the table says if there are none.
        """
        self._empty = empty
        if rows is not self._all_rows.rows or columns is not self._given:
            self._given, self._columns = columns, columns_for(columns, rows)
            self._all_rows = TableRows(rows, self._columns)
        self._arrange()

    def restore(self, state: TableState) -> None:
        """Arrange the table as it was kept; the filter stays."""
        self.state = state._replace(filter_text=self.state.filter_text)
        self._arrange()

    def set_filter(self, text: str) -> None:
        """Filter the rows, as if the user had typed it."""
        self._bar.set_text(text)

    def on_resize(self, _: events.Resize) -> None:
        """Place the columns again."""
        self._arrange()

    @on(HeadingLine.Clicked)
    def sort_by_heading(self, clicked: HeadingLine.Clicked) -> None:
        """Sort by the column whose heading was clicked."""
        clicked.stop()
        column = column_at(self._placed, clicked.x - MARGIN)
        if column is not None:
            self._change(sorted_by(self.state, self._columns, column.id))

    @on(LineTable.RowChosen)
    def drop_choice_without_row(self, chosen: LineTable.RowChosen) -> None:
        """The sentence in place of rows cannot be chosen."""
        if self.selected is None:
            chosen.stop()

    @on(Input.Changed)
    def filter_rows(self, changed: Input.Changed) -> None:
        """Apply the filter while it is typed."""
        changed.stop()
        self._change(self.state._replace(filter_text=changed.value))

    @on(Input.Submitted)
    def leave_filter(self, submitted: Input.Submitted) -> None:
        """Return to the rows."""
        submitted.stop()
        self._bar.close_if_empty()
        self.table.focus()
        self._arrange()

    def action_filter(self) -> None:
        self._bar.edit()
        self._arrange()

    def action_sort(self) -> None:
        from gpumon.ui.screens.choice import SortPicker  # late, as below: few sessions need it

        def choose(column_id: str | None) -> None:
            if column_id is not None:
                order = sorted_by(self.state, self._columns, column_id)
                self._change(order if column_id else self.state._replace(sort_column="", is_descending=False))

        columns = [item.column for item in self._placed if item.column.sort_key is not None]
        self.app.push_screen(SortPicker(columns, self.state), choose)

    def action_sort_by(self, *column_ids: str) -> None:
        """Sort by the first of some columns that the table has."""
        sortable = {column.id for column in self._columns if column.sort_key is not None}
        self._change(sorted_by(self.state, self._columns, next(filter(sortable.__contains__, column_ids), "")))

    def action_scroll_columns(self, step: int) -> None:
        self._scrolled = max(0, self._scrolled + step)
        self._arrange()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the keys that sort by a column that the table does not have, or scroll one that has room."""
        if action == "scroll_columns":
            return self._has_more if parameters == (1,) else self._scrolled > 0
        if action == "sort_by":
            return any(column.id in parameters and column.sort_key is not None for column in self._columns)
        return super().check_action(action, parameters)

    def _text_of_row(self) -> str:
        row = self.selected
        if row is None:
            return ""
        if self._copied is not None:
            return self._copied(row)
        texts = (item.column.text_of(row).strip() for item in self._placed)
        return "  ".join(text for text in texts if text and text != MISSING)

    def action_columns(self) -> None:
        from gpumon.ui.screens.choice import ColumnChoiceScreen

        def choose(state: TableState | None) -> None:
            if state is not None:
                self._change(state._replace(filter_text=self.state.filter_text))

        self.app.push_screen(ColumnChoiceScreen(self._columns, self.state), choose)

    def _change(self, state: TableState) -> None:
        if state != self.state:
            self.state = state
            self._arrange()
            self.post_message(self.StateChanged(self.table_id, state))

    def _arrange(self) -> None:
        """Show the rows as the state wants them; nothing is sent to the terminal for rows that stay the same."""
        if not self.is_mounted or not self.is_attached:
            return
        width = self.size.width or self.app.size.width
        placed_for = self._columns, self.state, self._scrolled, width
        if placed_for != self._placed_for:
            self._placed_for = placed_for
            shown = visible_columns(self._columns, self.state)
            self._placed = scrolled_columns(shown, self._scrolled, width - MARGIN - _SCROLL_BAR)
            self._has_more = len(self._placed) + self._scrolled < len(shown)
            self._headings.show([self.heading(width)])
        arrangement = self._all_rows.arranged(self.state)
        rows, problem = arrangement.rows, arrangement.problem
        self._rows = self.regroup(rows)
        with self.app.batch_update():
            text = "No row matches the filter." if self._all_rows.rows else self._empty
            if not self._rows and text:
                self.table.show([TableRow("", line(Span(clipped(text, width - MARGIN), Role.DIM)))])
            else:
                self.table.show(LazyRows(self._rows, self._key_of, partial(self._make_line, self._placed)))
            if self._bar.is_open:
                self._bar.show(len(self._rows), len(self._all_rows.rows), problem)
        if self._frame_height != self.frame_height:
            self._frame_height = self.frame_height
            self.post_message(ViewStateRequested())  # the screen may give the table another height

    def heading(self, width: int) -> Line:
        """The headings across the complete width, so that they divide the screen."""
        text = " " * MARGIN + plain(headings(self._placed, sort_marks(self.state)))
        return (Span(text.ljust(width), Role.HEADING),)
