"""A table of ready-made lines that sends bytes only for rows that changed.

Rows are compared here, and only the spans of a row that changed are sent: Textual sends a dirty region of a line from
the beginning of the span in which the region begins.
"""

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive, var
from textual.scroll_view import ScrollView

from gpumon.present.paint.line import Role, Span, changed_ranges, merged, plain
from gpumon.present.paint.table import LazyRow, LazyRows, TableRow
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.widgets.text_lines import LineWidget

MARGIN = 1
"""Cells before each row, for the cursor."""


class LineTable(ScrollView, LineWidget, can_focus=True, inherit_bindings=False):
    """Rows with a cursor.

    Args:
        id: The widget's id.
        choosable: Whether a row can be chosen.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {"line-table--cursor"}
    DEFAULT_CSS = "LineTable { height: 1fr; width: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }"
    BINDINGS: ClassVar[Bindings] = [
        key("table.up", "Up", "Cursor up", "move(-1)", show=False),
        key("table.down", "Down", "Cursor down", "move(1)", show=False),
        key("table.page-up", "Page up", "One page up", "page(-1)", show=False),
        key("table.page-down", "Page down", "One page down", "page(1)", show=False),
        key("table.top", "Top", "First row", "move(-1000000)", show=False),
        key("table.bottom", "Bottom", "Last row", "move(1000000)", show=False),
        key("table.open", "Details", "All values of the row, and their meaning", "choose"),
    ]

    class CursorMoved(Message):
        """The cursor has moved, or another row has come under it."""

    class RowChosen(Message):
        """The user has chosen a row with a key or with a double click."""

        def __init__(self, table: "LineTable", key: str) -> None:
            super().__init__()
            self.table = table
            self.key = key

        @property
        def control(self) -> "LineTable":
            return self.table

    cursor: var[int] = var(0)
    virtual_size = reactive(Size(0, 0), layout=False, repaint=False)
    """As `ScrollView` has it, but the number of rows alone neither lays out the screen again nor draws every row."""

    def __init__(self, *, id: str | None = None, choosable: bool = True) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.rows: Sequence[TableRow | LazyRow] = ()
        self._choosable = choosable

    def show(self, rows: Sequence[TableRow | LazyRow]) -> None:
        """Replace the rows, visible or not."""
        before, self.rows = self.rows, rows
        top = self.scroll_offset.y
        if len(before) != len(rows):
            self.virtual_size = Size(0, len(rows))  # first, so that the cursor can be scrolled to wherever its row is
        self._follow_cursor(before)
        if self.scroll_offset.y != top:
            self.refresh()
            return
        shared, end = min(len(before), len(rows)), top + self.size.height
        if len(before) != len(rows) and shared < end:
            first = max(top, shared)
            self.refresh(Region(0, first - top, self.size.width, end - first))
        for row in range(top, min(end, shared)):
            ranges = changed_ranges(before[row].line, rows[row].line)
            if ranges:
                self.refresh(*(Region(begin + MARGIN, row - top, end - begin, 1) for begin, end in ranges))

    def text_of_row(self) -> str:
        """The row under the cursor as plain text; empty if there is none. A `TableView` replaces this."""
        return " ".join(plain(self.rows[self.cursor].line).split()) if self.cursor < len(self.rows) else ""

    def line_segments(self, y: int) -> list[Segment]:
        """A visible row."""
        row = y + self.scroll_offset.y
        width = self.size.width
        if row >= len(self.rows):
            return self._role_styles.segments((), width)
        line = self.rows[row].line
        if not (self.has_focus and row == self.cursor):
            margin = Span(" " * MARGIN, line[0].role if line else Role.PLAIN)
            return self._role_styles.segments(merged((margin, *line)), width)
        overlay = self._role_styles.overlay("line-table--cursor")
        return self._role_styles.segments((Span("▸", Role.ACCENT), *line), width, overlay)

    def watch_virtual_size(self, size: Size) -> None:
        self._scroll_update(size)

    def on_resize(self, _: events.Resize) -> None:
        """Keep the cursor in sight."""
        self.call_after_refresh(self._scroll_to_cursor)

    def _scroll_to_cursor(self) -> None:
        self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False, force=True)

    def watch_cursor(self, before: int, after: int) -> None:
        self.refresh_line(before)
        self.refresh_line(after)
        self._scroll_to_cursor()
        self.post_message(self.CursorMoved())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the key that chooses a row if rows cannot be chosen."""
        return self._choosable if action == "choose" else super().check_action(action, parameters)

    def select(self, key: str) -> None:
        """Move the cursor to the row with a key, if there is one."""
        self.cursor = next((index for index, row in enumerate(self.rows) if row.key == key), self.cursor)

    def action_move(self, rows: int) -> None:
        self.cursor = max(0, min(len(self.rows) - 1, self.cursor + rows))

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 1))

    def action_choose(self) -> None:
        if self.rows:
            self.post_message(self.RowChosen(self, self.rows[self.cursor].key))

    def on_click(self, event: events.Click) -> None:
        row = event.y + self.scroll_offset.y
        if row < len(self.rows):
            self.cursor = row
            if event.chain > 1:
                self.action_choose()

    def on_focus(self) -> None:
        self.refresh_line(self.cursor)

    def on_blur(self) -> None:
        self.refresh_line(self.cursor)

    def _follow_cursor(self, before: Sequence[TableRow | LazyRow]) -> None:
        """Keep the cursor on the row with its key, or at its position once that row is gone.

        A cursor at the top of rows that do not all fit stays there: otherwise the view would jump wherever the first
        row of a sorted table went.
        """
        key = before[self.cursor].key if self.cursor < len(before) else None
        if self.cursor < len(self.rows) and self.rows[self.cursor].key == key:
            return
        index = self.cursor
        if index or len(self.rows) <= self.size.height:
            same = None if key is None else _index_of(self.rows, key)
            index = index if same is None else same
        index = max(0, min(index, len(self.rows) - 1))
        if index == self.cursor and (before or self.rows):
            self.call_next(self._announce_row)  # later: a message made now counts as sent, and stops, at the caller
        self.cursor = index

    def _announce_row(self) -> None:
        self.post_message(self.CursorMoved())


def _index_of(rows: Sequence[TableRow | LazyRow], key: str) -> int | None:
    """The position of the row with a key; None if there is none."""
    if isinstance(rows, LazyRows):
        return rows.index_of(key)
    return next((index for index, row in enumerate(rows) if row.key == key), None)
