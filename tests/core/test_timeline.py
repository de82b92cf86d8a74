"""A timeline keeps every metric of a device, coarser with age, in a bounded number of rows."""

from math import inf, isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.metrics import METRICS, Metric
from gpumon.core.timeline import TIERS, Row, Summary, Tier, Timeline, merged

UTILIZATION = "utilization_gpu_percent"
POWER = "power_watts"
STEPS = st.lists(st.tuples(st.floats(0, 40), st.none() | st.integers(0, 100)), max_size=80)


def filled(readings: dict[int, float], history_seconds: float = 3600.0) -> Timeline:
    timeline = Timeline(history_seconds)
    for second, value in readings.items():
        timeline.add(second, {UTILIZATION: value})
    return timeline


def column(timeline: Timeline, number: int, seconds: float, metric: str = UTILIZATION) -> Summary | None:
    return timeline.columns(metric, number, 1, seconds)[0]


@given(STEPS, st.sampled_from([1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0]))
def test_a_column_is_what_was_measured_in_it(steps: list[tuple[float, int | None]], width: float) -> None:
    timeline, seconds, measured = Timeline(86_400.0), 0.0, dict[int, list[int]]()
    for wait, value in steps:
        seconds += wait
        timeline.add(seconds, None if value is None else {UTILIZATION: value})
        if value is not None:
            measured.setdefault(int(seconds // width), []).append(value)
    last = int(seconds // width)
    for number in range(last + 1):
        if seconds - number * width > TIERS[0][1] and width < TIERS[1][0]:
            continue  # such a column is part of a coarser bucket by now
        summary = column(timeline, number, width)
        values = measured.get(number)
        assert (summary is None) == (values is None)
        if summary is not None and values is not None:
            assert (summary.low, summary.high) == (min(values), max(values))
            assert summary.low <= summary.mean <= summary.high
            if len(set(values)) == 1:
                assert isclose(summary.mean, values[0])


@given(st.lists(st.floats(0, 100, width=32), min_size=1, max_size=200))
def test_a_spike_is_never_averaged_away(values: list[float]) -> None:
    timeline = Timeline()
    for number, value in enumerate(values):
        timeline.add(60 * number / len(values), {UTILIZATION: value})
    timeline.add(1200.0, None)
    summary = column(timeline, 0, 60.0)
    assert summary is not None
    assert (summary.low, summary.high) == (min(values), max(values))


def test_the_mean_of_a_minute_is_that_of_its_seconds() -> None:
    timeline = filled({second: float(second) for second in range(60)})
    for _ in range(2):
        assert column(timeline, 0, 60.0) == Summary(0.0, 29.5, 59.0)
        timeline.add(700.0, None)  # the seconds are forgotten soon, the minute is not


def test_old_columns_come_from_coarser_buckets_and_then_from_none() -> None:
    timeline = filled({second: float(second % 10) for second in range(1000)}, 1800.0)
    assert column(timeline, 999, 1.0) == Summary(9, 9, 9)
    assert column(timeline, 105, 1.0) == Summary(0, 4.5, 9), "ten seconds in one by now"
    timeline.add(2000.0, None)
    assert column(timeline, 10, 10.0) is None
    assert timeline.first_seconds == 2000 - 1800


def test_gaps_stay_gaps() -> None:
    timeline = filled({0: 1.0, 1: 2.0, 30: 3.0})
    shown = timeline.columns(UTILIZATION, 0, 31, 1.0)
    assert [place for place, item in enumerate(shown) if item is not None] == [0, 1, 30]
    assert column(timeline, 1, 10.0) is None
    assert timeline.columns(UTILIZATION, -5, 5, 1.0) == [None] * 5
    assert timeline.columns(UTILIZATION, 31, 2, 1.0) == [None] * 2


@pytest.mark.parametrize("wrong", [-1.0, 101.0, 4294967295.0, inf])
def test_what_cannot_be_true_never_enters(wrong: float) -> None:
    timeline = Timeline()
    timeline.add(0.0, {UTILIZATION: wrong, POWER: 300.0})
    assert column(timeline, 0, 1.0) is None
    assert column(timeline, 0, 1.0, POWER) == Summary(300, 300, 300)


@pytest.mark.parametrize("metric", [METRICS[UTILIZATION], METRICS["temperature_celsius"]], ids=["percent", "celsius"])
def test_values_at_their_bounds_are_kept(metric: Metric) -> None:
    for bound in (metric.minimum, metric.maximum):
        for other in (300.0, -1.0):  # a wrong value next to the metric changes nothing
            timeline = Timeline()
            timeline.add(0.0, {metric.id: bound, POWER: other})
            assert column(timeline, 0, 1.0, metric.id) == Summary(bound, bound, bound)


def test_what_comes_late_is_dropped() -> None:
    timeline = filled({10: 1.0})
    timeline.add(5.0, {UTILIZATION: 99.0})
    assert column(timeline, 5, 1.0) is None


def test_a_flood_in_one_second_keeps_its_extremes_and_little_else() -> None:
    tier = Tier(1.0, 10)
    tier.advance(0.0)
    for number in range(10_000):
        row = [float(number)] * len(METRICS)
        tier.add(Row(row, row, row))
        assert len(tier._open) <= 65
    total = merged(tier.open_rows())
    assert (total.lows[0], total.highs[0], total.weight) == (0, 9999, 10_000)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("history", "rows"), [(60, 60), (600, 600), (3600, 960), (86_400, 600 + 360 + 1440)])
def test_memory_is_bounded(history: float, rows: int) -> None:
    timeline = Timeline(history)
    for second in range(0, 200_000, 7):
        timeline.add(second, {UTILIZATION: second % 100})
    assert sum(len(tier._closed) for tier in timeline._tiers) == rows


# A value holds until the next reading is due


def held(interval: float, *readings: tuple[float, float | None]) -> Timeline:
    timeline = Timeline()
    for seconds, value in readings:
        timeline.add(seconds, None if value is None else {UTILIZATION: value}, interval)
    return timeline


def means(timeline: Timeline, last: int, count: int, width: float = 1.0) -> list[float | None]:
    summaries = timeline.columns(UTILIZATION, last - count + 1, count, width)
    return [None if summary is None else summary.mean for summary in summaries]


@pytest.mark.parametrize("interval", [2.0, 5.0, 10.0, 60.0, 3600.0])
@pytest.mark.parametrize("width", [1.0, 2.0, 4.0, 10.0])
def test_a_column_between_two_readings_is_no_gap(interval: float, width: float) -> None:
    timeline = held(interval, *((number * interval, 50.0) for number in range(5)))
    columns = int(min(4 * interval, 500) // width) + 1
    assert timeline.recent_means(UTILIZATION, columns, width) == [50.0] * columns
    assert means(timeline, int(4 * interval // width), columns, width) == [50.0] * columns


@pytest.mark.parametrize("start", [0, 70, 5000])
def test_a_value_holds_while_a_frame_is_late(start: int) -> None:
    timeline = held(10.0, (start, 1), (start + 16, 2))
    assert means(timeline, start + 16, 17) == [1] * 16 + [2], "half an interval late"


def test_without_an_interval_nothing_holds() -> None:
    assert means(filled({0: 1.0, 2: 3.0}), 2, 3) == [1, None, 3]


def test_a_value_does_not_hold_longer_than_a_late_frame_takes() -> None:
    assert means(held(10.0, (0, 1), (17, 2)), 17, 18) == [1] * 10 + [None] * 7 + [2], "one frame is missing"
    assert means(held(1.0, (0, 1), (2, 2)), 2, 3) == [1, 1, 2]
    assert means(held(1.0, (0, 1), (3, 2)), 3, 4) == [1, None, None, 2]
    assert means(held(0.25, (0, 1), (2, 2)), 2, 3) == [1, None, 2]


def test_a_gap_begins_when_nothing_is_measured() -> None:
    assert means(held(10.0, (0, 1), (10, None), (20, None), (30, 2)), 30, 31) == [1] * 10 + [None] * 20 + [2]


def test_an_interval_that_changes_leaves_no_gap() -> None:
    timeline = Timeline()
    for seconds, interval in ((0, 1.0), (1, 1.0), (11, 10.0), (21, 10.0), (24, 1.0), (25, 1.0)):
        timeline.add(seconds, {UTILIZATION: seconds}, interval)
    assert None not in means(timeline, 25, 26)


def test_the_newest_reading_of_a_second_is_the_one_that_holds() -> None:
    assert means(held(5.0, (0.1, 1), (0.9, 3), (5.5, 7)), 5, 6) == [2, 3, 3, 3, 3, 7]


def test_a_held_value_counts_by_its_time() -> None:
    timeline = held(9.0, (0, 0.0), (9, 100.0), (60, None))
    assert column(timeline, 0, 10.0) == Summary(0.0, 10.0, 100.0)


# Strips: means of the newest columns


@given(
    st.lists(st.tuples(st.floats(0, 9), st.none() | st.integers(0, 100), st.integers(1, 40)), max_size=60),
    st.sampled_from([1.0, 2.0, 4.0]),
    st.sampled_from([0.0, 1.0, 5.0]),
)
def test_a_strip_is_what_the_columns_are(
    steps: list[tuple[float, int | None, int]], width: float, interval: float
) -> None:
    timeline, seconds = Timeline(), 1000.0
    for wait, value, count in steps:
        seconds += wait
        timeline.add(seconds, None if value is None else {UTILIZATION: value}, interval)
        if count % 3:  # a strip is not read after every reading
            strip = timeline.recent_means(UTILIZATION, count, width)
            expected = means(timeline, int(int(seconds) // width), count, width)
            assert strip == [None if mean is None else pytest.approx(mean) for mean in expected]


def test_a_strip_forgets_what_the_timeline_forgets() -> None:
    timeline = Timeline(60.0)
    for second in range(200):
        timeline.add(second, {UTILIZATION: 7}, 1.0)
        timeline.recent_means(UTILIZATION, 100, 1.0)
    for count in (60, 61, 62, 100):
        assert timeline.recent_means(UTILIZATION, count, 1.0) == [None] * max(0, count - 61) + [7.0] * min(count, 61)


def test_only_the_newest_column_of_a_strip_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    timeline = filled(dict.fromkeys(range(400), 5.0))
    timeline.recent_means(UTILIZATION, 60, 4.0)
    computed: list[int] = []
    columns = Timeline.columns

    def counted(self: Timeline, metric: str, first: int, count: int, seconds: float) -> list[Summary | None]:
        computed.append(count)
        return columns(self, metric, first, count, seconds)

    monkeypatch.setattr(Timeline, "columns", counted)
    for second in (400, 401, 402, 403, 404):
        timeline.add(second, {UTILIZATION: 5.0})
        assert timeline.recent_means(UTILIZATION, 60, 4.0) == [5.0] * 60
    assert computed == [1, 1], "the column that ended, when the strip moves"


def test_a_merged_reading_shows_its_lowest_and_highest_value() -> None:
    timeline = Timeline()
    timeline.add(0.0, {"power_watts": 300.0}, 10.0, {"power_watts": (100.0, 700.0)})
    timeline.add(10.0, {"power_watts": 300.0}, 10.0)
    assert timeline.columns("power_watts", 0, 1, 10.0) == [(100.0, 300.0, 700.0)]
