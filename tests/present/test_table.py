"""Tables: which columns fit into a width, and rows laid out in them."""

from collections.abc import Sequence
from typing import Any

import pytest
from rich.cells import cell_len

from gpumon.present.paint.line import Line, Role, Span, line, plain
from gpumon.present.paint.table import (
    GAP,
    Align,
    Column,
    LazyRow,
    LazyRows,
    fit_columns,
    headings,
    row_line,
    table_width,
)

WIDE = "训练模型の学習"


def column(heading: str, width: int, text: str = "", rank: int = 0, **more: Any) -> Column[str]:  # noqa: ANN401
    return Column(heading, width, lambda row, _: Span(text or row), rank, **more)


def names(columns: Sequence[Column[str]], width: int) -> list[str]:
    return [placed.column.title(placed.width) for placed in fit_columns(columns, width)]


def test_columns_of_high_rank_are_dropped_first() -> None:
    columns = [column("a", 4, rank=0), column("b", 4, rank=2), column("c", 4, rank=1)]
    assert names(columns, 14) == ["a", "b", "c"]
    assert names(columns, 13) == ["a", "c"]
    assert names(columns, 8) == ["a"]
    assert names(columns, 3) == []


def test_a_column_for_wide_tables_is_left_out_of_narrower_ones() -> None:
    columns = [column("a", 4), column("b", 4, rank=1, min_table_width=100)]
    assert names(columns, 99) == ["a"]
    assert names(columns, 100) == ["a", "b"]


def test_stretching_columns_share_the_remaining_width() -> None:
    columns = [column("a", 4), column("b", 4, stretches=True), column("c", 4, stretches=True)]
    placed = fit_columns(columns, 40)
    assert [item.width for item in placed] == [4, 17, 17]
    assert sum(item.width + GAP for item in placed) == 41, "the last gap may lie outside of the table"
    assert table_width(placed) == 40
    assert [item.width for item in fit_columns(columns, 41)] == [4, 17, 18]


@pytest.mark.parametrize("align", list(Align))
@pytest.mark.parametrize("text", ["", "x", "a long text that is cut", WIDE, "é" * 20, "🚀" * 9])
def test_a_cell_has_exactly_its_width(text: str, align: Align) -> None:
    for width in range(1, 15):
        placed = fit_columns([column("heading", width, align=align)], width)
        assert cell_len(plain(row_line(placed, text))) == width + 1
        assert cell_len(plain(headings(placed))) == width + 1


def test_text_is_aligned_and_marked_when_it_is_cut() -> None:
    left = fit_columns([column("a", 5, align=Align.LEFT)], 5)
    assert plain(row_line(left, "abcdef")) == "abcd… "
    assert plain(row_line(left, "abcde")) == "abcde "
    assert plain(row_line(left, "ab")) == "ab    "
    assert plain(row_line(fit_columns([column("a", 5)], 5), "ab")) == "   ab "


def test_headings_have_one_role_and_gaps_take_that_of_the_cell_before() -> None:
    placed = fit_columns([column("a", 2), Column("b", 1, lambda *_: Span("y", Role.DIM))], 10)
    assert headings(placed) == (Span(" a b ", Role.HEADING),)
    assert row_line(placed, "x") == (Span(" x "), Span("y ", Role.DIM))


def test_a_lazy_row_is_drawn_once_and_only_when_it_is_visible() -> None:
    drawn: list[Line] = []

    def draw() -> Line:
        drawn.append(line("text"))
        return drawn[-1]

    row = LazyRow("key", draw)
    assert not drawn
    assert row.line is row.line
    assert drawn == [line("text")]


def test_of_many_rows_only_those_that_are_asked_for_are_made() -> None:
    drawn: list[int] = []
    asked: list[int] = []

    def key_of(row: int) -> str:
        asked.append(row)
        return f"key{row}"

    def make_line(row: int) -> Line:
        drawn.append(row)
        return line(str(row))

    rows = LazyRows(range(3000), key_of, make_line)
    assert len(rows) == 3000
    assert (rows[7].key, plain(rows[7].line)) == ("key7", "7")
    assert rows[7] is rows[7]
    assert [row.key for row in rows[10:12]] == ["key10", "key11"]
    assert (drawn, asked) == ([7], [7, 10, 11])
    assert rows.index_of("key2999") == 2999
    assert rows.index_of("gone") is None
    assert drawn == [7]
    with pytest.raises(IndexError):
        rows[3000]
