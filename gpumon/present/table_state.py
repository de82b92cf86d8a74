"""How a table shows its rows: which ones, in which order, and in which columns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic

from gpumon.present.paint.line import Line, Role, Span, clipped, cut
from gpumon.present.paint.table import Column, RowT
from gpumon.present.table_filter import FilterError, RowTexts, parse_filter
from gpumon.session.table_memory import TableState

_OTHER_KEYS: Final = "sq"
"""Keys of the picker that are no column: the natural order, and close."""
_TITLE_WIDTHS: Final = ((2, 20), (1, 20), (1, 7), (1, 4))
"""Cells between the entries of the picker, and those of a title, from the most to the least room."""


def visible_columns(columns: Sequence[Column[RowT]], state: TableState) -> tuple[Column[RowT], ...]:
    """The columns that the user chose, in the order of the table, else its default columns.

    A chosen column is shown in tables of every width in which there is room for it.
    """
    chosen = [replace(column, min_table_width=0) for column in columns if column.id in state.columns]
    return tuple(chosen or (column for column in columns if not column.is_optional))


def columns_for(columns: Sequence[Column[RowT]], rows: Sequence[RowT]) -> tuple[Column[RowT], ...]:
    """The columns, those that need a value are optional if no row has one."""

    def has_value(column: Column[RowT]) -> bool:
        key = column.sort_key
        return key is not None and any(key(row) is not None for row in rows)

    return tuple(
        replace(column, is_optional=not has_value(column)) if column.is_filled else column for column in columns
    )


@dataclass(frozen=True, slots=True)
class Arrangement(Generic[RowT]):
    """The rows that a table shows.

    Attributes:
        rows: The rows in their order.
        problem: Why the filter cannot be applied, in a sentence; empty if it can.
    """

    rows: Sequence[RowT]
    problem: str = ""


class TableRows(Generic[RowT]):
    """The rows of a table at one moment, arranged again at every key: what has been computed for one is used for all.

    Args:
        rows: The rows in their natural order.
        columns: All columns of the table.
    """

    def __init__(self, rows: Sequence[RowT], columns: Sequence[Column[RowT]]) -> None:
        self.rows = rows
        self.columns = columns
        self._texts = RowTexts(columns)
        self._order = ("", False)
        self._sorted = rows
        """All rows in ``_order``: a filter keeps the order."""
        self._arranged: tuple[TableState, Arrangement[RowT]] | None = None

    def arranged(self, state: TableState) -> Arrangement[RowT]:
        """The rows that match the filter, sorted; rows without a value come last, and equal ones keep their order.

        A filter that cannot be applied matches every row.
        """
        if self._arranged is None or self._arranged[0] != state:
            self._arranged = state, self._arrange(state)
        return self._arranged[1]

    def _arrange(self, state: TableState) -> Arrangement[RowT]:
        order = (state.sort_column, state.is_descending)
        if order != self._order:
            self._order, self._sorted = order, _sorted(self.rows, self.columns, state)
        if not state.filter_text.strip():
            return Arrangement(self._sorted)
        try:
            return Arrangement(parse_filter(state.filter_text, self.columns, self._texts)(self._sorted))
        except FilterError as error:
            return Arrangement(self._sorted, str(error))


def arranged(rows: Sequence[RowT], columns: Sequence[Column[RowT]], state: TableState) -> Arrangement[RowT]:
    """Arrange rows once, see `TableRows.arranged`."""
    return TableRows(rows, columns).arranged(state)


def _sorted(rows: Sequence[RowT], columns: Iterable[Column[RowT]], state: TableState) -> Sequence[RowT]:
    sort_key = next((column.sort_key for column in columns if column.id == state.sort_column), None)
    if sort_key is None:
        return rows
    values = [sort_key(row) for row in rows]
    present = [index for index, value in enumerate(values) if value is not None]
    if len({isinstance(values[index], str) for index in present}) < 2:
        present.sort(key=values.__getitem__, reverse=state.is_descending)  # type: ignore[arg-type]  # none is missing
    else:  # numbers before texts
        present.sort(key=lambda index: (isinstance(values[index], str), values[index]), reverse=state.is_descending)
    return [*(rows[index] for index in present), *(rows[index] for index, value in enumerate(values) if value is None)]


def sorted_by(state: TableState, columns: Sequence[Column[RowT]], column_id: str) -> TableState:
    """Sort by a column, or reverse the order if it is sorted by that column already."""
    column = next((column for column in columns if column.id == column_id), None)
    if column is None or column.sort_key is None:
        return state
    descending = not state.is_descending if state.sort_column == column_id else column.descending_first
    return state._replace(sort_column=column_id, is_descending=descending)


def sort_marks(state: TableState) -> Mapping[str, str]:
    """The mark of the sorted column, by column id."""
    return {state.sort_column: "▼" if state.is_descending else "▲"}


def sort_letters(columns: Iterable[Column[RowT]]) -> dict[str, Column[RowT]]:
    """A letter for each column: the first one of its heading that no other column has."""
    letters: dict[str, Column[RowT]] = {}
    for column in columns:
        candidates = f"{column.title(column.width).lower()}abcdefghijklmnoprtuvwxyz"
        free = (letter for letter in candidates if letter.isalpha() and letter not in (*letters, *_OTHER_KEYS))
        letters[next(free)] = column
    return letters


def sort_line(letters: Mapping[str, Column[RowT]], state: TableState, width: int) -> Line:
    """The columns and their letters in one line; the sorted one has its mark, and its letter reverses the order."""
    marks = sort_marks(state)
    for gap, title_width in _TITLE_WIDTHS:
        spans = [Span(f" sort by{' ' * gap}", Role.DIM)]
        for letter, column in letters.items():
            title = clipped(column.title(column.width).strip(), title_width)
            spans += [Span(f"{letter} ", Role.ACCENT), Span(f"{title}{marks.get(column.id, '')}{' ' * gap}")]
        spans += [Span("s ", Role.ACCENT), Span("none")]
        if sum(len(span.text) for span in spans) <= width:
            break
    return cut(tuple(spans), width)
