"""Bars and pointers under them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.present.paint.bar import Extent, extents, fine_bar, pointers, progress_bar, stacked_bar
from gpumon.present.paint.line import Line, Role, plain, width_of

SIZES = st.integers(0, 1 << 40)


def test_a_progress_bar_is_full_only_at_the_end() -> None:
    assert progress_bar(None, 4) == "░░░░"
    assert progress_bar(0.999, 4) == "███░"
    assert progress_bar(1.0, 4) == "████"
    assert progress_bar(7.0, 4) == "████"
    assert progress_bar(-1.0, 4) == "░░░░"
    assert progress_bar(0.5, 0) == ""


def test_parts_of_a_bar_differ_by_their_glyphs() -> None:
    assert stacked_bar([(5, "A"), (3, "B"), (0, "C")], 10, 10) == "AAAAABBB  "
    assert stacked_bar([(5, "A"), (0.01, "B")], 10, 10) == "AAAAAB    ", "the smallest part is visible"
    assert stacked_bar([(50, "A"), (1, "B")], 10, 4) == "AAAB", "also where the others leave no room"
    assert stacked_bar([(5, "A")], 0, 4) == "A   "


@given(st.lists(SIZES, max_size=30), st.integers(1, 200))
def test_parts_of_a_bar_are_adjacent(sizes: list[int], width: int) -> None:
    begin = 0
    for extent, size in zip(extents(sizes, sum(sizes), width), sizes, strict=True):
        assert extent.begin == begin <= extent.end <= width
        assert not size or extent.end > extent.begin or begin == width
        begin = extent.end
    assert begin == width or not any(sizes)


def test_a_part_lies_where_its_share_is() -> None:
    assert extents([1, 0, 1], 4, 8) == [Extent(0, 2), Extent(2, 2), Extent(2, 4)]
    assert extents([1, 1], 0, 8) == [Extent(0, 1), Extent(1, 2)], "without a scale each part still has a cell"


def test_pointers_stand_under_what_they_point_at() -> None:
    assert pointers([(2, "low"), (9, "high")], 10, 20) == "    ▲ low    high ▲"
    assert pointers([(2, "a long text"), (3, "other")], 10, 20) == "    ▲ a long text"
    assert pointers([(0, "a"), (9, "a text without room")], 10, 10) == "▲ a      ▲"


@pytest.mark.parametrize("width", range(1, 40))
def test_pointers_never_leave_the_bar(width: int) -> None:
    assert width_of(pointers([(5, "allocated"), (9, "reserved")], 9, width)) <= width


def test_shares_that_look_the_same_share_one_bar() -> None:
    bars: dict[int, Line] = {}
    for number in range(5001):
        bar = fine_bar(number / 5000, 10, Role.PLAIN)
        bars[id(bar)] = bar
    assert len(bars) == 2 * 10 + 1
    assert plain(fine_bar(0.0001, 2, Role.PLAIN)) == "╸─"
    assert plain(fine_bar(0.9999, 2, Role.PLAIN)) == "━╸"
    assert plain(fine_bar(1.0, 2, Role.PLAIN)) == "━━"
