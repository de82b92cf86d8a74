"""Tables of texts: every column is as wide as its widest text, and columns that do not fit are left out."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Final, NamedTuple

from gpumon.present.paint.line import Line, Role, Span, line, width_of
from gpumon.present.paint.table import Align

_GAP: Final = "  "
_MIN_HEADING: Final = 10
"""Cells below which a heading is not broken into lines."""


class CellColumn(NamedTuple):
    """A column.

    Attributes:
        heading: Lines of the heading.
        cells: A text for each row.
        rank: Columns of a lower rank are kept longer where there is little room.
        align: Alignment of the texts.
        role: Role of the cells.
    """

    heading: Sequence[str]
    cells: Sequence[str]
    rank: int = 0
    align: Align = Align.LEFT
    role: Role = Role.PLAIN

    @property
    def width(self) -> int:
        """Cells of the widest text."""
        return max(width_of(text) for text in (*self.heading, *self.cells))

    def padded(self, text: str) -> str:
        """A text of the column in its width."""
        padding = " " * (self.width - width_of(text))
        return text + padding if self.align is Align.LEFT else padding + text


def value_column(label: str, cells: Sequence[str], rank: int, unit: str | None = None) -> CellColumn:
    """A column of values, whose heading is broken into lines where it is wider than they are.

    Args:
        label: The heading.
        cells: A text for each row.
        rank: See `CellColumn`.
        unit: The last line of the heading; None for no such line.
    """
    width = max(_MIN_HEADING, *(width_of(cell) for cell in cells))
    heading = [*wrap(label, width, break_long_words=False), *([] if unit is None else [unit])]
    return CellColumn(heading, cells, rank, Align.RIGHT)


def fitting_columns(columns: Sequence[CellColumn], width: int) -> list[CellColumn]:
    """The columns that fit, those of a low rank first, in their order.

    Args:
        columns: All columns.
        width: Cells of a line, or 0 for as many as the table needs.
    """
    chosen: set[int] = set()
    room = width + len(_GAP)
    for index, column in sorted(enumerate(columns), key=lambda item: item[1].rank):
        needed = column.width + len(_GAP)
        if not width or needed <= room:
            chosen.add(index)
            room -= needed
    return [column for index, column in enumerate(columns) if index in chosen]


def cell_table(columns: Sequence[CellColumn]) -> list[Line]:
    """The headings, whose last lines stand next to each other, and the rows."""
    height = max((len(column.heading) for column in columns), default=0)
    lines = []
    for row in range(-height, 0):
        texts = [column.padded(column.heading[row] if -row <= len(column.heading) else "") for column in columns]
        lines.append(line(Span(_GAP.join(texts).rstrip(), Role.ACCENT)))
    for row in range(max((len(column.cells) for column in columns), default=0)):
        spans = [
            Span((_GAP if index else "") + column.padded(column.cells[row]), column.role)
            for index, column in enumerate(columns)
        ]
        lines.append(line(*spans))
    return lines
