"""Tables as data: rows with a key, the columns that fit into a width, and the layout of a row in them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final, Generic, NamedTuple, TypeVar

from gpumon.present.paint.line import Line, Role, Span, clipped, merged, width_of

RowT = TypeVar("RowT")
GAP: Final = 1
"""Cells between two columns."""


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


class Align(Enum):
    """Alignment of a cell's text."""

    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True)
class Column(Generic[RowT]):
    """One column of a table.

    Attributes:
        heading: The heading, or a function that returns it for a width.
        width: Width in cells; the minimum width if the column stretches.
        cell: Returns a row's cell for a width.
        rank: Columns of a lower rank are kept longer when the table is narrow.
        align: Alignment of the text.
        stretches: Whether the column shares the remaining width.
        min_table_width: The column is left out of narrower tables, even where there is room for it.
    """

    heading: str | Callable[[int], str]
    width: int
    cell: Callable[[RowT, int], Span]
    rank: int = 0
    align: Align = Align.RIGHT
    stretches: bool = False
    min_table_width: int = 0

    def title(self, width: int) -> str:
        """The heading at a width."""
        return self.heading if isinstance(self.heading, str) else self.heading(width)


@dataclass(frozen=True)
class PlacedColumn(Generic[RowT]):
    """A column with its final width."""

    column: Column[RowT]
    width: int


def fit_columns(columns: Sequence[Column[RowT]], width: int) -> tuple[PlacedColumn[RowT], ...]:
    """Selects the columns that fit into ``width`` cells and shares the remaining width among those that stretch."""
    chosen: list[Column[RowT]] = []
    left = width + GAP
    for column in sorted(columns, key=lambda column: column.rank):
        if width >= column.min_table_width and column.width + GAP <= left:
            chosen.append(column)
            left -= column.width + GAP
    stretching = sum(column.stretches for column in chosen)
    placed = []
    for column in columns:
        if column not in chosen:
            continue
        extra = 0
        if column.stretches:
            extra = left // stretching
            left -= extra
            stretching -= 1
        placed.append(PlacedColumn(column, column.width + extra))
    return tuple(placed)


def table_width(placed: Sequence[PlacedColumn[RowT]]) -> int:
    """Cells that the columns and the gaps between them occupy."""
    return sum(item.width + GAP for item in placed) - GAP


def headings(placed: Sequence[PlacedColumn[RowT]]) -> Line:
    """The line of headings."""
    texts = (_fit(item.column.title(item.width), item.width, item.column.align) + " " * GAP for item in placed)
    return (Span("".join(texts), Role.HEADING),)


def row_line(placed: Sequence[PlacedColumn[RowT]], row: RowT) -> Line:
    """A row in its columns. A gap takes the role of the text before it, so that it costs no style change."""
    spans = []
    for item in placed:
        text, role = item.column.cell(row, item.width)
        spans.append(Span(_fit(text, item.width, item.column.align) + " " * GAP, role))
    return merged(spans)


def _fit(text: str, width: int, align: Align) -> str:
    """The text in exactly ``width`` cells, wide characters counted as the terminal does."""
    text = clipped(text, width)
    padding = " " * (width - width_of(text))
    return padding + text if align is Align.RIGHT else text + padding
