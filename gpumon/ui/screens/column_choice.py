"""The choice of the columns of a table, and of the column by which it is sorted."""

from collections.abc import Sequence
from typing import Any, ClassVar

from textual import events
from textual.binding import Binding, BindingType

from gpumon.present.paint.table import Column
from gpumon.present.table_state import sort_marks, sorted_by, visible_columns
from gpumon.session.table_memory import TableState
from gpumon.ui.screens.choice import ChoiceScreen, TickItem
from gpumon.ui.widgets.line_table import LineTable


class ColumnChoiceScreen(ChoiceScreen[TableState]):
    """Every column of a table with a tick. The result is the table's new state.

    Args:
        columns: All columns that the table can have.
        state: How the table is arranged now.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "Sort", id="columns.sort", tooltip="Sort by this column; again for the other direction"),
    ]

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
