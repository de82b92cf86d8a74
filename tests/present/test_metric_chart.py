"""The chart of a metric: scrolling gives the same as drawing again, and only what has changed is read and drawn."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.timeline import Summary, Timeline
from gpumon.present.limits import scale_of
from gpumon.present.metric_chart import MetricChart, Track, fill_short_gaps
from gpumon.present.paint.line import Role, plain
from gpumon.present.time_axis import TimeWindow
from tests import builders

UTILIZATION = "utilization_gpu_percent"
POWER = "power_watts"
WIDTH = 80


def flat(*values: float | None) -> list[Summary | None]:
    return [None if value is None else Summary(value, value, value) for value in values]


@settings(max_examples=30)
@given(st.lists(st.none() | st.integers(0, 100), min_size=5, max_size=40), st.sampled_from([1.0, 2.0, 4.0]))
def test_a_chart_that_scrolls_is_the_same_as_one_drawn_at_once(values: list[int | None], interval: float) -> None:
    timeline, device = Timeline(), builders.device()
    scrolling = MetricChart(UTILIZATION)
    for number, value in enumerate(values):
        seconds = 100 + number * interval
        timeline.add(seconds, None if value is None else {UTILIZATION: value})
        window = TimeWindow(int(seconds), 30, 1.0)
        tracks = [Track(device, timeline, Role.SERIES_1)]
        scrolling.draw(tracks, window, 4, interval)
        fresh = MetricChart(UTILIZATION)
        fresh.draw(tracks, window, 4, interval)
        assert scrolling.values_of(tracks[0]) == fresh.values_of(tracks[0])
        assert [plain(row)[1:] for row in scrolling.rows] == [plain(row)[1:] for row in fresh.rows]
        assert scrolling.summary == fresh.summary


def test_a_chart_is_not_drawn_again_before_a_column_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    timeline, scrolling = Timeline(), MetricChart(UTILIZATION)
    timeline.add(100.0, {UTILIZATION: 10})
    scrolling.draw([Track(builders.device(), timeline, Role.SERIES_1)], TimeWindow(10, 30, 10.0), 4, 1.0)
    monkeypatch.setattr("gpumon.present.metric_chart._columns", lambda *_: pytest.fail("it was drawn again"))
    timeline.add(101.0, {UTILIZATION: 90})
    scrolling.draw([Track(builders.device(), timeline, Role.SERIES_1)], TimeWindow(10, 30, 10.0), 4, 1.0)


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


@pytest.mark.parametrize("interval_seconds", [3600.0, 1e7, 1e300])
def test_the_work_of_a_draw_is_bounded_by_the_columns(monkeypatch: pytest.MonkeyPatch, interval_seconds: float) -> None:
    counts = []
    columns = Timeline.columns

    def counted(timeline: Timeline, metric: str, first: int, count: int, column_seconds: float) -> list[Summary | None]:
        counts.append(count)
        return columns(timeline, metric, first, count, column_seconds)

    monkeypatch.setattr(Timeline, "columns", counted)
    timeline = Timeline()
    track = Track(builders.device(0), timeline, Role.SERIES_1)
    chart = MetricChart(POWER)
    for second in range(100, 104):
        timeline.add(second, {POWER: 300.0}, interval_seconds)
        chart.draw([track], TimeWindow(second, WIDTH, 1.0), 3, interval_seconds)
    assert [column is not None for column in chart.values_of(track)[-5:]] == [False, True, True, True, True]
    assert max(counts) <= 2 * WIDTH + 1
