"""Time axes: labels, zoom levels, and the axis that grows with a run."""

import pytest

from gpumon.present.time_axis import ZOOMS, TimeWindow, axis_text, column_means, run_axis, zooms_for


def test_the_axis_is_labeled_with_the_time_before_now() -> None:
    now = axis_text(TimeWindow(100, 60, 1.0), 100.5)
    assert now.endswith("now┴")
    assert now[60 - 31 :].startswith("┴-00:30")
    assert len(now) == 60
    past = axis_text(TimeWindow(40, 60, 1.0), 100.5)
    assert "now" not in past
    assert "┴-01:30" in past
    assert axis_text(TimeWindow(100, 3, 1.0), 100.5) == "───"


def test_labels_are_at_least_fifteen_cells_apart() -> None:
    assert axis_text(TimeWindow(100, 35, 1.0), 100.5) == "────┴-00:30────────┴-00:15─────now┴"
    assert "-00:30" in axis_text(TimeWindow(100, 40, 2.0), 200.5)
    assert "-00:15" not in axis_text(TimeWindow(100, 40, 2.0), 200.5)


def test_a_window_numbers_its_columns() -> None:
    window = TimeWindow(10, 4, 5.0)
    assert (window.first, window.begin_seconds, window.end_seconds) == (7, 35.0, 55.0)
    assert [window.index_of(seconds) for seconds in (34.9, 35.0, 39.9, 54.9, 55.0)] == [-1, 0, 0, 3, 4]


def test_the_widest_zoom_shows_the_complete_history() -> None:
    assert zooms_for(3600, 150)[-1] * 150 >= 3600
    assert zooms_for(60, 150) == (1.0,)
    assert zooms_for(150, 150) == (1.0,)
    assert zooms_for(7 * 86_400, 10) == ZOOMS


def test_the_axis_of_a_run_has_room_for_the_expected_duration() -> None:
    axis = run_axis(1000.0, 1004.0, 20.0, 50)
    assert (axis.bucket_seconds, axis.columns_drawn) == (0.5, 9)
    assert run_axis(1000.0, 1004.0, None, 50).bucket_seconds == 0.1
    assert run_axis(1000.0, 999.0, None, 50).columns_drawn == 1, "the clock was set back"


@pytest.mark.parametrize("elapsed", [0, 1, 59, 3600, 86_400, 10_000_000])
@pytest.mark.parametrize("columns", [1, 10, 200])
def test_a_complete_run_fits_on_its_axis(elapsed: float, columns: int) -> None:
    axis = run_axis(0.0, elapsed, None, columns)
    assert int(elapsed / axis.bucket_seconds) + 1 <= max(columns, 1)
    assert len(column_means([(0.0, 1.0), (elapsed, 2.0)], axis)) == axis.columns_drawn


def test_columns_hold_means_and_a_value_holds_for_a_while() -> None:
    axis = run_axis(100.0, 109.0, None, 10)
    assert axis.bucket_seconds == 1.0
    means = column_means([(100.2, 1.0), (100.7, 3.0), (101.5, None), (107.0, 9.0), (500.0, 5.0)], axis)
    assert means == [2.0, 2.0, None, None, None, None, None, 9.0, 9.0, None]


def test_samples_just_outside_of_the_axis_count_as_its_first_and_last_column() -> None:
    axis = run_axis(100.0, 103.0, None, 4)
    assert column_means([(99.5, 1.0), (104.5, 7.0)], axis) == [1.0, 1.0, None, 7.0]
    assert column_means([(98.5, 1.0), (105.5, 7.0)], axis) == [None] * 4


def test_a_long_interval_leaves_no_gaps() -> None:
    axis = run_axis(100.0, 119.0, None, 20)
    assert column_means([(100.0, 1.0), (110.0, 2.0)], axis, 10.0) == [1.0] * 10 + [2.0] * 10
    assert None in column_means([(100.0, 1.0), (110.0, 2.0)], axis)
