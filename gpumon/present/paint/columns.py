"""The usual columns of tables: names and numbers, which are shown, sorted and searched by one value."""

from collections.abc import Callable, Mapping
from typing import Final

from gpumon.core.units import age_text, bytes_text, duration_text, short_time_text
from gpumon.present.paint.line import Role, Span, dim_if_missing
from gpumon.present.paint.table import Align, Column, Quantity, RowT

_QUANTITIES: Final[Mapping[Callable[[float | None], str], Quantity]] = {
    bytes_text: Quantity.BYTES,
    age_text: Quantity.SECONDS,
    duration_text: Quantity.SECONDS,
    short_time_text: Quantity.SECONDS,
}
"""What numbers count, by the function that writes them."""


def text_column(
    heading: str,
    width: int,
    column_id: str,
    text: Callable[[RowT], str | None],
    *,
    rank: int = 0,
    max_width: int | None = None,
    min_table_width: int = 0,
    role: Callable[[RowT], Role] = lambda _: Role.PLAIN,
    missing: str = "",
    aliases: tuple[str, ...] = (),
) -> Column[RowT]:
    """A column of names; rows without one are sorted last.

    Args:
        heading: The heading.
        width: The minimum width in cells.
        column_id: See `Column.id`.
        text: The name of a row.
        rank: See `Column.rank`.
        max_width: To how many cells it stretches, 0 for any number; None if it does not stretch.
        min_table_width: See `Column.min_table_width`.
        role: The role of a name.
        missing: What stands in the place of a missing name.
        aliases: See `Column.aliases`.
    """

    def cell(row: RowT, _: int) -> Span:
        name = text(row)
        return Span(name, role(row)) if name else Span(missing, Role.DIM if missing else role(row))

    return Column(
        heading,
        width,
        cell,
        rank,
        Align.LEFT,
        stretches=max_width is not None,
        max_width=max_width or 0,
        min_table_width=min_table_width,
        id=column_id,
        sort_key=lambda row: text(row) or None,
        text=lambda row: text(row) or missing,
        aliases=aliases,
    )


def number_column(
    heading: str,
    width: int,
    column_id: str,
    value: Callable[[RowT], float | None],
    text: Callable[[float | None], str],
    *,
    rank: int = 0,
    min_table_width: int = 0,
    descending_first: bool = True,
    span: Callable[[str], Span] = dim_if_missing,
    is_optional: bool = False,
    aliases: tuple[str, ...] = (),
) -> Column[RowT]:
    """A column of numbers.

    Args:
        heading: The heading.
        width: The width in cells.
        column_id: See `Column.id`.
        value: The number of a row.
        text: Writes the number, and says what it counts.
        rank: See `Column.rank`.
        min_table_width: See `Column.min_table_width`.
        descending_first: See `Column.descending_first`.
        span: How the text is shown.
        is_optional: See `Column.is_optional`.
        aliases: See `Column.aliases`.
    """
    return Column(
        heading,
        width,
        lambda row, _: span(text(value(row))),
        rank,
        min_table_width=min_table_width,
        id=column_id,
        sort_key=value,
        descending_first=descending_first,
        quantity=_QUANTITIES.get(text, Quantity.NUMBER),
        aliases=aliases,
        is_optional=is_optional,
    )
