"""Tables as data: rows with a key, the columns that fit into a width, and the layout of a row in them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, TypeVar, overload

from gpumon.present.paint.line import Line, Role, Span, clipped, cut, merged, plain, width_of

RowT = TypeVar("RowT")
GAP: Final = 1
"""Cells between two columns."""
_MAX_CELLS: Final = 512
"""Number of cached cells: values repeat, over time and from row to row."""


class TableRow(NamedTuple):
    """A row: a key that identifies it over time, which the cursor follows, and its line."""

    key: str
    line: Line


class LazyRow:
    """A row that is drawn when it becomes visible: of thousands of rows, few ever are.

    Args:
        key: Identifies the row over time.
        draw: Draws its line.
    """

    def __init__(self, key: str, draw: Callable[[], Line]) -> None:
        self.key = key
        self._draw = draw

    @cached_property
    def line(self) -> Line:
        """The line, drawn once."""
        return self._draw()


class LazyRows(Sequence[LazyRow], Generic[RowT]):
    """The rows of a table as lines, each made when it is asked for: the key, too, costs time for thousands of rows.

    Args:
        rows: The rows.
        key_of: Returns what identifies a row over time.
        make_line: Draws a row.
    """

    def __init__(self, rows: Sequence[RowT], key_of: Callable[[RowT], str], make_line: Callable[[RowT], Line]) -> None:
        self._rows = rows
        self._key_of = key_of
        self._make_line = make_line
        self._made: dict[int, LazyRow] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> LazyRow: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[LazyRow]: ...

    def __getitem__(self, index: int | slice) -> LazyRow | Sequence[LazyRow]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        made = self._made.get(index)
        if made is None:
            row = self._rows[index]
            made = self._made[index] = LazyRow(self._key_of(row), partial(self._make_line, row))
        return made

    def index_of(self, key: str) -> int | None:
        """The position of the row with a key, found without making rows; None if there is none."""
        return next((index for index, row in enumerate(self._rows) if self._key_of(row) == key), None)


class Align(Enum):
    """Alignment of a cell's text."""

    LEFT = "left"
    RIGHT = "right"


class Quantity(Enum):
    """What the values by which a column is sorted count; a filter such as ``mem>10G`` is parsed by it."""

    NUMBER = "number"
    BYTES = "bytes"
    SECONDS = "seconds"


@dataclass(frozen=True)
class Column(Generic[RowT]):
    """One column of a table.

    Attributes:
        heading: The heading, or a function that returns it for a width.
        width: Width in cells; the minimum width if the column stretches.
        cell: Returns a row's cell for a width: a span, or several in at most that width.
        rank: Columns of a lower rank are kept longer when the table is narrow.
        align: Alignment of the text.
        stretches: Whether the column shares the remaining width.
        min_table_width: The column is left out of narrower tables, even where there is room for it.
        max_width: Maximum width of a column that stretches; 0 for no maximum.
        id: Names the column in the configuration and in filters, and never changes; empty if the table is only drawn.
        sort_key: Returns the value by which rows are sorted, None if it is missing; without it the column cannot be
            sorted.
        descending_first: Whether the largest values come first when the column is sorted for the first time.
        quantity: What ``sort_key`` counts.
        text: Returns the text that a filter searches; by default that of the cell at the column's width.
        aliases: Other names of the column in filters.
        is_optional: Whether the column is shown only if the user chose it.
        is_filled: Whether the column is shown by default only if a row has a value, by its ``sort_key``.
    """

    heading: str | Callable[[int], str]
    width: int
    cell: Callable[[RowT, int], Span | Line]
    rank: int = 0
    align: Align = Align.RIGHT
    stretches: bool = False
    min_table_width: int = 0
    max_width: int = 0
    id: str = field(default="", kw_only=True)
    sort_key: Callable[[RowT], float | str | None] | None = field(default=None, kw_only=True)
    descending_first: bool = field(default=False, kw_only=True)
    quantity: Quantity = field(default=Quantity.NUMBER, kw_only=True)
    text: Callable[[RowT], str] | None = field(default=None, kw_only=True)
    aliases: tuple[str, ...] = field(default=(), kw_only=True)
    is_optional: bool = field(default=False, kw_only=True)
    is_filled: bool = field(default=False, kw_only=True)

    def title(self, width: int) -> str:
        """The heading at a width."""
        return self.heading if isinstance(self.heading, str) else self.heading(width)

    def text_of(self, row: RowT) -> str:
        """The text of a row that a filter searches."""
        if self.text is not None:
            return self.text(row)
        cell = self.cell(row, self.width)
        return cell.text if isinstance(cell, Span) else plain(cell)


@dataclass(frozen=True)
class PlacedColumn(Generic[RowT]):
    """A column with its final width."""

    column: Column[RowT]
    width: int


def fit_columns(columns: Sequence[Column[RowT]], width: int) -> tuple[PlacedColumn[RowT], ...]:
    """Selects the columns that fit into ``width`` cells and shares the remaining width among those that stretch."""
    chosen: set[int] = set()
    left = width + GAP
    for index, column in sorted(enumerate(columns), key=lambda item: item[1].rank):
        if width >= column.min_table_width and column.width + GAP <= left:
            chosen.add(index)
            left -= column.width + GAP
    widths = _stretched([columns[index] for index in sorted(chosen)], left)
    return tuple(PlacedColumn(column, width) for column, width in widths)


def scrolled_columns(columns: Sequence[Column[RowT]], scrolled: int, width: int) -> tuple[PlacedColumn[RowT], ...]:
    """The columns that fit; of a scrolled table, the first column, and from a later one on all that have room.

    Args:
        columns: The columns.
        scrolled: Number of columns after the first one that are left out.
        width: Cells of the table.
    """
    if not scrolled:
        return fit_columns(columns, width)
    kept = [columns[0], *columns[1 + scrolled :]]
    left, count = width + GAP, 0
    for column in kept:
        left -= column.width + GAP
        count += left >= 0
    return fit_columns([replace(column, min_table_width=0, rank=0) for column in kept[: max(1, count)]], width)


def _stretched(columns: Sequence[Column[RowT]], room: int) -> list[tuple[Column[RowT], int]]:
    """The columns with their widths: those that stretch share the room equally, up to their maximum."""
    widths = [column.width for column in columns]
    growing = [index for index, column in enumerate(columns) if column.stretches]
    while room > 0 and growing:
        for position, index in enumerate(growing):
            share = room // (len(growing) - position)
            limit = columns[index].max_width or widths[index] + share
            extra = max(0, min(share, limit - widths[index]))
            widths[index] += extra
            room -= extra
        growing = [index for index in growing if not 0 < columns[index].max_width <= widths[index]]
    return list(zip(columns, widths, strict=True))


def table_width(placed: Sequence[PlacedColumn[RowT]]) -> int:
    """Cells that the columns and the gaps between them occupy."""
    return sum(item.width + GAP for item in placed) - GAP


def headings(placed: Sequence[PlacedColumn[RowT]], marks: Mapping[str, str] = MappingProxyType({})) -> Line:
    """The line of headings.

    Args:
        placed: The columns.
        marks: A character by column id, which stands after the heading, in the gap if the heading leaves no room.
    """
    texts = []
    for item in placed:
        title, mark = item.column.title(item.width), marks.get(item.column.id, "")
        if item.column.align is Align.LEFT:
            texts.append(_fit(clipped(title, item.width) + mark, item.width + GAP, Align.LEFT))
        else:
            texts.append(_fit(title, item.width, Align.RIGHT) + (mark or " " * GAP))
    return (Span("".join(texts), Role.HEADING),)


def column_at(placed: Sequence[PlacedColumn[RowT]], x: int) -> Column[RowT] | None:
    """The column at a cell of the table, the gap after a column included; None outside of all columns."""
    left = 0
    for item in placed:
        if left <= x < left + item.width + GAP:
            return item.column
        left += item.width + GAP
    return None


def row_line(placed: Sequence[PlacedColumn[RowT]], row: RowT) -> Line:
    """A row in its columns. A gap takes the role of the text before it, so that it costs no style change."""
    return merged([span for item in placed for span in cell_spans(item, row)])


def cell_spans(item: PlacedColumn[RowT], row: RowT) -> Line:
    """The cell of a row in exactly the width of its column, and the gap after it."""
    column = item.column
    return _padded(column.cell(row, item.width), item.width, column.align)


@lru_cache(maxsize=_MAX_CELLS)
def _padded(cell: Span | Line, width: int, align: Align) -> Line:
    if isinstance(cell, Span):
        return (Span(_fit(cell.text, width, align) + " " * GAP, cell.role),)
    spans = cut(cell, width)
    padding = " " * (width - width_of(plain(spans)))
    role = spans[-1].role if spans else Role.PLAIN
    if align is Align.RIGHT:
        return merged((Span(padding), *spans, Span(" " * GAP, role)))
    return merged((*spans, Span(padding + " " * GAP, role)))


def _fit(text: str, width: int, align: Align) -> str:
    """The text in exactly ``width`` cells, wide characters counted as the terminal does."""
    text = clipped(text, width)
    padding = " " * (width - width_of(text))
    return padding + text if align is Align.RIGHT else text + padding
