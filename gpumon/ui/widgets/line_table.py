"""A table of ready-made lines that sends bytes only for rows that changed.

Textual re-renders and re-sends a dirty region whole, and trims it at the right but not at the left. So rows are
compared here, and a row is sent from its left end to the last cell that changed: what changes seldom belongs to the
right.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import var
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpumon.ui.paint.line import Line, Role, Span, changed_width, merged
from gpumon.ui.widgets.painted import ROLE_CLASSES, RoleStyles

MARGIN = 1
"""Cells before each row, in which the cursor stands."""

_CURSOR_MARK = "▸"


class TableRow(NamedTuple):
    """A row: what it is about, with which the cursor stays, and how it looks."""

    key: str
    line: Line


class LaterRow:
    """A row that is drawn when it comes in sight: of thousands, few ever do.

    Args:
        key: What it is about.
        draw: Draws it.
    """

    def __init__(self, key: str, draw: Callable[[], Line]) -> None:
        self.key = key
        self._draw = draw

    @cached_property
    def line(self) -> Line:
        """How it looks."""
        return self._draw()


class LineTable(ScrollView, can_focus=True, inherit_bindings=False):
    """Rows with a cursor.

    Args:
        id: The widget's id.
        choosable: Whether a row can be chosen.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {*ROLE_CLASSES, "line-table--cursor"}
    DEFAULT_CSS = "LineTable { height: 1fr; width: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False, id="table.up", tooltip="Move the cursor up"),
        Binding("down,j", "move(1)", "Down", show=False, id="table.down", tooltip="Move the cursor down"),
        Binding("pageup", "page(-1)", "Page up", show=False, id="table.page-up", tooltip="Move up a page"),
        Binding("pagedown", "page(1)", "Page down", show=False, id="table.page-down", tooltip="Move down a page"),
        Binding("g,home", "move(-1000000)", "Top", show=False, id="table.top", tooltip="Go to the first row"),
        Binding("G,end", "move(1000000)", "Bottom", show=False, id="table.bottom", tooltip="Go to the last row"),
        Binding("enter", "choose", "Details", id="table.choose", tooltip="Show every value of the row and its source"),
    ]

    class CursorMoved(Message):
        """The cursor stands on another row."""

    class RowChosen(Message):
        """A row was chosen by key or by a second click."""

        def __init__(self, table: "LineTable", key: str) -> None:
            super().__init__()
            self.table = table
            self.key = key

        @property
        def control(self) -> "LineTable":
            return self.table

    cursor: var[int] = var(0)

    def __init__(self, *, id: str | None = None, choosable: bool = True) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.rows: Sequence[TableRow | LaterRow] = ()
        self._choosable = choosable
        self._role_styles = RoleStyles(self)

    def show(self, rows: Sequence[TableRow | LaterRow]) -> None:
        """Draws the rows, visible or not, in place of those before."""
        before, self.rows = self.rows, rows
        if len(before) != len(rows):
            self.virtual_size = Size(0, len(rows))  # first, so that the cursor can be scrolled to wherever its row is
        self._follow_cursor(before)
        if len(before) != len(rows):
            self.refresh()
            return
        top = self.scroll_offset.y
        for row in range(top, min(top + self.size.height, len(rows))):
            width = changed_width(before[row].line, self.rows[row].line)
            if width:
                self.refresh(Region(0, row - top, min(MARGIN + width, self.size.width), 1))

    def render_line(self, y: int) -> Strip:
        row = y + self.scroll_offset.y
        width = self.size.width
        if row >= len(self.rows):
            return self._role_styles.strip((), width)
        line = self.rows[row].line
        if not (self.has_focus and row == self.cursor):
            margin = Span(" " * MARGIN, line[0].role if line else Role.PLAIN)
            return self._role_styles.strip(merged((margin, *line)), width)
        overlay = Style(bgcolor=self.get_component_rich_style("line-table--cursor").bgcolor, bold=True)
        return self._role_styles.strip((Span(_CURSOR_MARK, Role.ACCENT), *line), width, overlay)

    def notify_style_update(self) -> None:
        self._role_styles.clear()
        super().notify_style_update()

    def watch_cursor(self, before: int, after: int) -> None:
        self.refresh_line(before)
        self.refresh_line(after)
        self.scroll_to_region(Region(0, after, 1, 1), animate=False, force=True)
        self.post_message(self.CursorMoved())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hides the key for choosing where there is nothing to choose."""
        return self._choosable if action == "choose" else super().check_action(action, parameters)

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

    def _follow_cursor(self, before: Sequence[TableRow | LaterRow]) -> None:
        """Keeps the cursor on its row's key; where that has gone, on its place."""
        key = before[self.cursor].key if self.cursor < len(before) else None
        if self.cursor < len(self.rows) and self.rows[self.cursor].key == key:
            return
        places = [place for place, row in enumerate(self.rows) if row.key == key]
        self.cursor = places[0] if places else max(0, min(self.cursor, len(self.rows) - 1))
