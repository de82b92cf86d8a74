"""Tables as data: which columns fit into a width, and rows laid out into them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from gpumon.ui.paint import line
from gpumon.ui.paint.line import Line, Role, Span, clipped, merged

RowT = TypeVar("RowT")


class Align(Enum):
    """Side on which a cell's text stands."""

    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True)
class Column(Generic[RowT]):
    """One column of a table.

    Attributes:
        heading: Its heading, or how to make one for the width that it has.
        width: Its width in cells; the least width if it stretches.
        cell: A row's text in this column, given the width it has.
        rank: Columns of a lower rank are the last to be left out when the table is narrow.
        align: Side of its text.
        stretches: Whether it shares what width is left.
        least_table_width: It is left out of narrower tables, even where it would fit.
    """

    heading: str | Callable[[int], str]
    width: int
    cell: Callable[[RowT, int], Span]
    rank: int = 0
    align: Align = Align.RIGHT
    stretches: bool = False
    least_table_width: int = 0

    def title(self, width: int) -> str:
        """The heading at a width."""
        return self.heading if isinstance(self.heading, str) else self.heading(width)


@dataclass(frozen=True)
class Placed(Generic[RowT]):
    """A column with the width that it got."""

    column: Column[RowT]
    width: int


GAP = 1


def place(columns: Sequence[Column[RowT]], width: int) -> tuple[Placed[RowT], ...]:
    """Chooses the columns that fit into ``width`` cells and shares the rest among those that stretch."""
    chosen: list[Column[RowT]] = []
    left = width + GAP
    for column in sorted(columns, key=lambda column: column.rank):
        if width >= column.least_table_width and column.width + GAP <= left:
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
        placed.append(Placed(column, column.width + extra))
    return tuple(placed)


def headings(placed: Sequence[Placed[RowT]]) -> Line:
    """The line of headings."""
    text = "".join(_fit(each.column.title(each.width), each.width, each.column.align) + " " * GAP for each in placed)
    return (Span(text, Role.HEADING),)


def row_line(placed: Sequence[Placed[RowT]], row: RowT) -> Line:
    """A row laid out; a gap takes the role of the text before it, so that it costs no change of style."""
    spans = []
    for each in placed:
        text, role = each.column.cell(row, each.width)
        spans.append(Span(_fit(text, each.width, each.column.align) + " " * GAP, role))
    return merged(spans)


def _fit(text: str, width: int, align: Align) -> str:
    """Text in exactly ``width`` cells, wide characters counted as the terminal does."""
    text = clipped(text, width)
    padding = " " * (width - line.width_of(text))
    return padding + text if align is Align.RIGHT else text + padding
