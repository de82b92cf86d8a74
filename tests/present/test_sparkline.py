"""Sparklines and layered charts."""

from hypothesis import given
from hypothesis import strategies as st

from gpumon.present.paint.layers import layers
from gpumon.present.paint.line import Role, plain, width_of
from gpumon.present.paint.sparkline import MARK, sparkline

SIZES = st.integers(0, 1 << 40)


def test_a_sparkline_has_a_fixed_scale() -> None:
    assert sparkline([0, 50, 100], 100) == "_▅█"
    assert sparkline([1, 2, 3], 100) == "▁▁▁", "small values stay small, whatever the others are"
    assert sparkline([-5, 0.5, 250], 100) == "__█"
    assert sparkline([0.99, 12.4, 12.5, 87.4, 87.5], 100) == "_▁▂▇█"


def test_a_sparkline_shows_gaps_but_nothing_before_the_first_value() -> None:
    assert sparkline([None, None, 10, None, 90], 100) == "  ▁·█"
    assert sparkline([None, None], 100) == "  "
    assert sparkline([], 100) == ""


def test_a_sparkline_without_a_scale_is_empty() -> None:
    assert sparkline([1, 2, 3], None) == sparkline([1, 2, 3], 0) == "   "


@given(st.lists(st.none() | st.floats(0, 1e12)), st.none() | st.floats(0, 1e12))
def test_a_sparkline_has_a_cell_for_each_value(values: list[float | None], maximum: float | None) -> None:
    assert len(sparkline(values, maximum)) == len(values)


def test_a_mark_stands_in_its_bucket() -> None:
    assert sparkline([10, 20, 90, 90], 100, {1, 3}) == f"▁{MARK}█{MARK}"
    assert sparkline([None, None, 90], 100, {0}) == f"{MARK} █", "also before the first value"
    assert sparkline([None, None], None, {1}) == f" {MARK}"


def test_layers_differ_by_their_form() -> None:
    rows = layers([None, 4, 4, 8], [None, 8, 8, 8], [None, 12, 12, 12], 16, 4)
    assert (plain(rows[0]), plain(rows[3])) == ("    ", " ⣿⣿⣿")
    assert {span.role for span in rows[3] if span.text.strip()} == {Role.MEMORY_HISTORY}
    solid, dotted = plain(rows[2])[2], plain(rows[1])[2]
    assert bin(ord(solid) - 0x2800).count("1") == 2 * bin(ord(dotted) - 0x2800).count("1")


def test_layers_are_drawn_to_the_dot() -> None:
    nothing = [None] * 3
    assert [plain(row) for row in layers([1, 2, 7], nothing, nothing, 8, 2)] == ["  ⣶", "⣀⣤⣿"]
    assert [plain(row) for row in layers(nothing, [2, 7, 2], nothing, 8, 2)] == [" ⡖⡆", "⠤⠇⠧"]
    assert [plain(row) for row in layers(nothing, nothing, [1, 7, 7], 8, 2)] == [" ⡂⠂", "⡀⡂ "]
    assert [plain(row) for row in layers([0.001, 99, 0], nothing, nothing, 8, 1)] == ["⣀⣿ "]


@given(st.lists(st.none() | SIZES, min_size=1, max_size=40), st.integers(0, 1 << 40), st.integers(1, 8))
def test_layers_fill_their_box_exactly(values: list[int | None], top: int, height: int) -> None:
    rows = layers(values, values, values, top, height)
    assert [width_of(plain(row)) for row in rows] == [len(values)] * height
