"""Charts: values are drawn at their place, gaps are empty, and scrolling gives the same as drawing again."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.timeline import Summary, Timeline
from gpumon.present.limits import scale_of
from gpumon.present.metric_chart import MetricChart, fill_short_gaps
from gpumon.present.paint.chart import advance_chart, chart
from gpumon.present.time_axis import TimeWindow
from tests import builders

SUMMARIES = st.none() | st.tuples(*[st.floats(-20, 150)] * 3).map(lambda three: Summary(*sorted(three)))
UTILIZATION = "utilization_gpu_percent"


def flat(*values: float | None) -> list[Summary | None]:
    return [None if value is None else Summary(value, value, value) for value in values]


def test_a_value_stands_at_its_height() -> None:
    assert chart(flat(0, 0, 100, 100), 100, 3) == (" ⢰⠉⠁", " ⡜  ", "⣀⡇  ")
    assert chart(flat(100), 100, 2) == ("⠁", " ")
    assert chart(flat(0), 100, 2) == (" ", "⡀")


def test_a_gap_is_empty_and_not_drawn_over() -> None:
    drawn = chart(flat(50, 50, None, None, 50, 50), 100, 3)
    assert all(row[2:4] == "  " for row in drawn)
    assert any(row[:2].strip() for row in drawn)
    assert any(row[4:].strip() for row in drawn)


def test_a_spike_within_a_column_is_visible() -> None:
    drawn = chart([*flat(10, 10), Summary(0, 10, 100), *flat(10, 10)], 100, 4)
    assert all(row[2] != " " for row in drawn)
    assert drawn[0][0] == drawn[0][4] == " "


@pytest.mark.parametrize("columns", [[], flat(None, None), flat(1.0)])
@pytest.mark.parametrize("height", [0, 1, 5])
def test_a_chart_always_has_the_requested_size(columns: list[Summary | None], height: int) -> None:
    drawn = chart(columns, 0 if not columns else 100, height)
    assert [len(row) for row in drawn] == [len(columns)] * height


@settings(deadline=None, max_examples=60)
@given(st.lists(SUMMARIES, min_size=30, max_size=30), st.integers(1, 4), st.integers(1, 3), st.integers(1, 6))
def test_scrolling_is_the_same_as_drawing_again(
    columns: list[Summary | None], new: int, unsettled: int, height: int
) -> None:
    before = [*columns[: 24 - unsettled], *flat(*[7.0] * unsettled)]
    now = columns[new : 24 + new]
    assert advance_chart(chart(before, 100, height), now, 100, new, unsettled) == chart(now, 100, height)


def test_one_chart_does_not_change_the_next() -> None:
    first = chart(flat(1, 2, 3, 4), 4, 3)
    chart(flat(*range(100)), 1000, 9)
    assert chart(flat(1, 2, 3, 4), 4, 3) == first


def test_plotext_is_not_imported_before_there_is_something_to_draw() -> None:
    program = "import sys, gpumon.ui.app; sys.exit('plotext' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@settings(deadline=None, max_examples=30)
@given(st.lists(st.none() | st.integers(0, 100), min_size=5, max_size=40), st.sampled_from([1.0, 2.0, 4.0]))
def test_a_chart_that_scrolls_is_the_same_as_one_drawn_at_once(values: list[int | None], interval: float) -> None:
    timeline, device = Timeline(), builders.device()
    scrolling = MetricChart(UTILIZATION)
    for number, value in enumerate(values):
        seconds = 100 + number * interval
        timeline.add(seconds, None if value is None else {UTILIZATION: value})
        window = TimeWindow(int(seconds), 30, 1.0)
        scrolling.draw(timeline, device, window, 4, interval)
        fresh = MetricChart(UTILIZATION)
        fresh.draw(timeline, device, window, 4, interval)
        assert scrolling.columns == fresh.columns
        assert scrolling.rows == fresh.rows
        assert scrolling.summary == fresh.summary


def test_a_chart_is_not_drawn_again_before_a_column_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    timeline, scrolling = Timeline(), MetricChart(UTILIZATION)
    timeline.add(100.0, {UTILIZATION: 10})
    scrolling.draw(timeline, builders.device(), TimeWindow(10, 30, 10.0), 4, 1.0)
    monkeypatch.setattr("gpumon.present.metric_chart._columns", lambda *_: pytest.fail("it was drawn again"))
    timeline.add(101.0, {UTILIZATION: 90})
    scrolling.draw(timeline, builders.device(), TimeWindow(10, 30, 10.0), 4, 1.0)


def test_short_gaps_are_filled_and_long_ones_are_not() -> None:
    assert fill_short_gaps(flat(1, None, 2), 1) == flat(1, 1, 2)
    assert fill_short_gaps(flat(1, None, None, 2), 1) == flat(1, None, None, 2)
    assert fill_short_gaps(flat(None, 1, None), 1) == flat(None, 1, None)


def test_scales() -> None:
    device = builders.device()
    assert scale_of(UTILIZATION, device, 30) == 100
    assert scale_of("power_watts", device, 300) == 700
    assert scale_of("power_watts", device, 710) == 1000, "values above the limit are drawn, not cut off"
    assert scale_of("energy_joules", device, 123_456) == 200_000
    assert scale_of("energy_joules", device, 0) == 1
    assert scale_of("bar1_used_bytes", device, 3 << 20) == 4 << 20
