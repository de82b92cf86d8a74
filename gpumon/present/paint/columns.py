"""The columns of all tables: ``columns.txt`` declares them, and a screen says what the cells of each one show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Generic

from gpumon.core.text_table import table
from gpumon.core.units import number_text
from gpumon.present.paint.line import Line, Role, Span, dim_if_missing
from gpumon.present.paint.table import Align, Column, Quantity, RowT

_DRAWN: Final = frozenset({"status", "earlier", "results", "timings", "last", "ended-jobs", "ended-users"})
"""Tables without columns to choose."""


@dataclass(frozen=True)
class Cells(Generic[RowT]):
    """What a column shows of a row.

    Attributes:
        cell: See `Column.cell`.
        sort_key: See `Column.sort_key`.
        text: See `Column.text`.
        heading: Returns the heading for a width; None for the one that is declared.
    """

    cell: Callable[[RowT, int], Span | Line]
    sort_key: Callable[[RowT], float | str | None] | None = None
    text: Callable[[RowT], str] | None = None
    heading: Callable[[int], str] | None = None


def columns(name: str, cells: Mapping[str, Cells[RowT]]) -> tuple[Column[RowT], ...]:
    """The columns of a table.

    Args:
        name: The table.
        cells: What each column shows, by its id; those of columns that the table does not have are not used.
    """
    return tuple(_column(declared, cells[declared[0]]) for declared in _declared()[name])


def column_ids() -> Mapping[str, tuple[str, ...]]:
    """The ids of the columns that a user can choose, by the id of the table."""
    return {name: tuple(row[0] for row in rows) for name, rows in _declared().items() if name not in _DRAWN}


def names(
    text: Callable[[RowT], str | None], role: Role | Callable[[RowT], Role] = Role.PLAIN, missing: str = ""
) -> Cells[RowT]:
    """Cells with a name; rows without one are sorted last.

    Args:
        text: The name of a row.
        role: The role of a name.
        missing: What stands in the place of a missing name.
    """

    def cell(row: RowT, _: int) -> Span:
        name = text(row)
        if not name and missing:
            return Span(missing, Role.DIM)
        return Span(name or "", role if isinstance(role, Role) else role(row))

    return Cells(cell, lambda row: text(row) or None, lambda row: text(row) or missing)


def numbers(
    value: Callable[[RowT], float | None],
    text: Callable[[float | None], str] = number_text,
    span: Callable[[str], Span] = dim_if_missing,
) -> Cells[RowT]:
    """Cells with a number.

    Args:
        value: The number of a row.
        text: Writes the number.
        span: How the text is shown.
    """
    return Cells(lambda row, _: span(text(value(row))), value)


@cache
def _declared() -> Mapping[str, Sequence[Sequence[str]]]:
    """The cells of the rows of each table."""
    tables: dict[str, list[list[str]]] = {}
    for row in table("gpumon.present", "columns"):
        if row.startswith("==="):
            tables[row[4:]] = rows = []
        else:
            rows.append([cell.strip() for cell in row.split("|")])
    return tables


def _column(declared: Sequence[str], cells: Cells[RowT]) -> Column[RowT]:
    name, heading, widths, rank, *rest = declared
    width, stretches, max_width = widths.partition("-")
    words = dict(word.partition("=")[::2] for word in " ".join(rest).split())
    quantity = next((quantity for quantity in Quantity if quantity.value in words), Quantity.NUMBER)
    return Column(
        cells.heading or heading,
        int(width),
        cells.cell,
        int(rank),
        Align.LEFT if "left" in words else Align.RIGHT,
        stretches=bool(stretches),
        min_table_width=int(words.get("from", 0)),
        max_width=int(max_width or 0),
        id=name,
        sort_key=cells.sort_key,
        descending_first="down" in words,
        quantity=quantity,
        text=_no_text if "unsearched" in words else cells.text,
        aliases=tuple(filter(None, words.get("alias", "").split(","))),
        is_optional="optional" in words,
        is_filled="filled" in words,
    )


def _no_text(_: object) -> str:
    return ""
