"""Rings hold what was measured, and nothing else."""

from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.history import Ring

STEPS = st.lists(
    st.tuples(
        st.floats(0, 7),
        st.none() | st.floats(-1e12, 1e12),
    ),
    max_size=60,
)


def model(steps: list[tuple[float, float | None]]) -> tuple[dict[int, list[float]], int | None]:
    """Readings by bucket, of one second, and the newest bucket."""
    buckets: dict[int, list[float]] = {}
    seconds, newest = 0.0, None
    for wait, value in steps:
        seconds += wait
        newest = int(seconds)
        if value is not None:
            buckets.setdefault(newest, []).append(value)
    return buckets, newest


@given(STEPS, st.integers(1, 9), st.integers(0, 15))
def test_ring_is_its_model(steps: list[tuple[float, float | None]], size: int, count: int) -> None:
    ring = Ring(size, 1.0)
    seconds = 0.0
    for wait, value in steps:
        seconds += wait
        ring.add(seconds, value)
    buckets, newest = model(steps)
    tail = ring.tail(count)
    assert len(tail) == count
    for back, found in enumerate(reversed(tail)):
        readings = None if newest is None or back >= size else buckets.get(newest - back)
        if readings is None:
            assert found is None
        else:
            assert found == pytest.approx(fmean(readings), rel=1e-6, abs=1e-3)


@given(STEPS, st.integers(1, 9))
def test_ring_never_outgrows_its_size(steps: list[tuple[float, float | None]], size: int) -> None:
    ring = Ring(size, 0.5)
    seconds = 0.0
    for wait, value in steps:
        seconds += wait
        ring.add(seconds, value)
        assert len(ring) == size
        assert sum(each is not None for each in ring.tail(100)) <= size


def test_gap_stays_a_gap() -> None:
    ring = Ring(10, 1.0)
    ring.add(0, 5)
    ring.add(1, None)
    ring.add(4, 7)
    assert ring.tail(5) == [5, None, None, None, 7]


def test_zero_is_not_a_gap() -> None:
    ring = Ring(3, 1.0)
    ring.add(0, 0)
    assert ring.tail(2) == [None, 0]


def test_a_bucket_is_the_average_of_what_was_measured() -> None:
    ring = Ring(3, 2.0)
    for seconds, value in ((0.0, 10), (0.5, None), (1.0, 20), (1.9, 60)):
        ring.add(seconds, value)
    assert ring.tail(1) == [30]


def test_what_is_drawn_stays_drawn() -> None:
    ring = Ring(5, 1.0)
    ring.add(1, 10)
    ring.add(3, 30)
    ring.add(1.5, 99)
    assert ring.tail(3) == [10, None, 30]


def test_a_long_pause_empties_it() -> None:
    ring = Ring(4, 1.0)
    for second in range(4):
        ring.add(second, 1)
    ring.add(1e9, 2)
    assert ring.tail(4) == [None, None, None, 2]


@pytest.mark.parametrize(("size", "width"), [(0, 1.0), (1, 0.0), (1, -1.0)])
def test_impossible_rings_are_refused(size: int, width: float) -> None:
    with pytest.raises(ValueError, match="bucket"):
        Ring(size, width)
