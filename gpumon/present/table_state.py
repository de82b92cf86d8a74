"""How a table shows its rows: which ones, in which order, and in which columns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Generic, NamedTuple

from gpumon.present.paint.table import Column, RowT
from gpumon.present.table_filter import FilterError, parse_filter, row_text
from gpumon.session.table_memory import TableState

ASCENDING: Final = "▲"
DESCENDING: Final = "▼"


def visible_columns(columns: Sequence[Column[RowT]], state: TableState) -> tuple[Column[RowT], ...]:
    """The columns that the user chose, in the order of the table, else its default columns.

    A chosen column is shown in tables of every width in which there is room for it.
    """
    chosen = [replace(column, min_table_width=0) for column in columns if column.id in state.columns]
    return tuple(chosen or (column for column in columns if not column.is_optional))


class Arrangement(NamedTuple, Generic[RowT]):
    """The rows that a table shows.

    Attributes:
        rows: The rows in their order.
        problem: Why the filter cannot be applied, in a sentence; empty if it can.
    """

    rows: Sequence[RowT]
    problem: str = ""


def arranged(
    rows: Sequence[RowT],
    columns: Sequence[Column[RowT]],
    state: TableState,
    text_of: Callable[[RowT], str] | None = None,
) -> Arrangement[RowT]:
    """The rows that match the filter, sorted; rows without a value come last, and equal ones keep their order.

    A filter that cannot be applied matches every row.

    Args:
        rows: The rows in their natural order.
        columns: All columns of the table.
        state: How it is arranged.
        text_of: Returns what `row_text` does, for a caller that keeps the texts.
    """
    problem = ""
    if state.filter_text.strip():
        try:
            matches = parse_filter(state.filter_text, columns, text_of or (lambda row: row_text(row, columns)))
            rows = [row for row in rows if matches(row)]
        except FilterError as error:
            problem = str(error)
    return Arrangement(_sorted(rows, columns, state), problem)


def _sorted(rows: Sequence[RowT], columns: Iterable[Column[RowT]], state: TableState) -> Sequence[RowT]:
    sort_key = next((column.sort_key for column in columns if column.id == state.sort_column), None)
    if sort_key is None:
        return rows
    present: list[tuple[bool, float | str, int]] = []
    missing: list[RowT] = []
    for index, row in enumerate(rows):
        value = sort_key(row)
        if value is None:
            missing.append(row)
        else:
            present.append((isinstance(value, str), value, index))
    present.sort(key=lambda item: item[:2], reverse=state.is_descending)
    return [*(rows[index] for _, _, index in present), *missing]


def next_sort(state: TableState, columns: Sequence[Column[RowT]]) -> TableState:
    """Sort by the next visible column that can be sorted; the natural order follows the last one."""
    sortable = [column for column in visible_columns(columns, state) if column.sort_key is not None]
    ids = ["", *(column.id for column in sortable)]
    following = (ids.index(state.sort_column) + 1) % len(ids) if state.sort_column in ids else 0
    descending = following > 0 and sortable[following - 1].descending_first
    return state._replace(sort_column=ids[following], is_descending=descending)


def sorted_by(state: TableState, columns: Sequence[Column[RowT]], column_id: str) -> TableState:
    """Sort by a column, or reverse the order if it is sorted by that column already."""
    column = next((column for column in columns if column.id == column_id), None)
    if column is None or column.sort_key is None:
        return state
    descending = not state.is_descending if state.sort_column == column_id else column.descending_first
    return state._replace(sort_column=column_id, is_descending=descending)


def sort_marks(state: TableState) -> Mapping[str, str]:
    """The mark of the sorted column, by column id."""
    return {state.sort_column: DESCENDING if state.is_descending else ASCENDING}
