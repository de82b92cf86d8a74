"""A timeline holds what was measured, coarser with age, in a bounded number of rows."""

from math import inf, isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.metrics import METRICS
from gpumon.core.timeline import TIERS, Row, Summary, Tier, Timeline

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


@settings(deadline=None)
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
        found = column(timeline, number, width)
        values = measured.get(number)
        assert (found is None) == (values is None)
        if found is not None and values is not None:
            assert (found.low, found.high) == (min(values), max(values))
            assert found.low <= found.mean <= found.high
            if len(set(values)) == 1:
                assert isclose(found.mean, values[0])


@given(st.lists(st.floats(0, 100, width=32), min_size=1, max_size=200))
def test_a_spike_is_never_averaged_away(values: list[float]) -> None:
    timeline = Timeline()
    for number, value in enumerate(values):
        timeline.add(60 * number / len(values), {UTILIZATION: value})
    timeline.add(1200.0, None)
    found = column(timeline, 0, 60.0)
    assert found is not None
    assert (found.low, found.high) == (min(values), max(values))


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
    assert [place for place, each in enumerate(shown) if each is not None] == [0, 1, 30]
    assert column(timeline, 1, 10.0) is None
    assert timeline.columns(UTILIZATION, -5, 5, 1.0) == [None] * 5
    assert timeline.columns(UTILIZATION, 31, 2, 1.0) == [None] * 2


@pytest.mark.parametrize("wrong", [-1.0, 101.0, 4294967295.0, inf])
def test_what_cannot_be_true_never_enters(wrong: float) -> None:
    timeline = Timeline()
    timeline.add(0.0, {UTILIZATION: wrong, POWER: 300.0})
    assert column(timeline, 0, 1.0) is None
    assert column(timeline, 0, 1.0, POWER) == Summary(300, 300, 300)


def test_what_comes_late_is_dropped() -> None:
    timeline = filled({10: 1.0})
    timeline.add(5.0, {UTILIZATION: 99.0})
    assert column(timeline, 5, 1.0) is None


def test_a_flood_in_one_second_keeps_its_extremes_and_little_else() -> None:
    tier = Tier(1.0, 10)
    tier.advance(0.0)
    for number in range(10_000):
        row = [float(number)] * len(METRICS)
        tier.take(Row(row, row, row))
        assert len(tier._open) <= 65
    found = tier.open_row()
    assert found is not None
    assert (found.lows[0], found.highs[0]) == (0, 9999)


@pytest.mark.parametrize(("history", "rows"), [(60, 60), (600, 600), (3600, 960), (86_400, 600 + 360 + 1440)])
def test_memory_is_bounded(history: float, rows: int) -> None:
    timeline = Timeline(history)
    for second in range(0, 200_000, 7):
        timeline.add(second, {UTILIZATION: second % 100})
    assert sum(len(tier._closed) for tier in timeline._tiers) == rows


def test_nothing_has_no_beginning() -> None:
    assert Timeline().first_seconds is None
    assert column(Timeline(), 0, 1.0) is None
