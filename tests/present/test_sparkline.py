"""Sparklines."""

from hypothesis import given
from hypothesis import strategies as st

from gpumon.present.paint.sparkline import MARK, sparkline


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
