"""Frames become state in one place."""

import pytest

from gpumon.core.model import DeviceState, Sweep
from gpumon.core.store import Store
from tests.builders import device, frame

UTILIZATION = "utilization_gpu_percent"


def at(seconds: float, percent: float | None = 50, state: DeviceState = DeviceState.OK) -> Store:
    store = Store(bucket_seconds=1)
    store.apply(frame(monotonic_seconds=seconds, devices=(device(readings={UTILIZATION: percent}, state=state),)))
    return store


def history(store: Store, buckets: int, index: int = 0) -> list[float | None]:
    return store.history(device(index).key, UTILIZATION, buckets)


def test_latest_frame_and_history() -> None:
    store = Store(bucket_seconds=1)
    for second in range(3):
        store.apply(frame(monotonic_seconds=second, devices=(device(readings={UTILIZATION: second * 10}),)))
    assert store.frame is not None
    assert store.frame.monotonic_seconds == 2
    assert history(store, 4) == [None, 0, 10, 20]


def test_stale_lost_and_missing_readings_are_gaps() -> None:
    for state in (DeviceState.UNRESPONSIVE, DeviceState.LOST):
        assert history(at(5, 50, state), 1) == [None]
    assert history(at(5, None), 1) == [None]
    assert history(at(5, 0), 1) == [0]


@pytest.mark.parametrize(("age", "sweep", "fresh"), [(0.0, None, True), (3.0, None, False), (3.0, 2.6, True)])
def test_readings_older_than_the_moment_are_gaps(age: float, sweep: float | None, fresh: bool) -> None:
    store = Store(bucket_seconds=1)
    old = device(readings={UTILIZATION: 50}, age_seconds=age)
    store.apply(frame(monotonic_seconds=5, interval_seconds=1.0, sweep=Sweep(sweep), devices=(old,)))
    assert history(store, 1) == [50 if fresh else None]


def test_devices_are_matched_by_uuid_not_by_index() -> None:
    store = Store(bucket_seconds=1)
    store.apply(frame(monotonic_seconds=1, devices=(device(0, readings={UTILIZATION: 10}), device(1))))
    swapped = (device(0, uuid=device(1).uuid), device(1, uuid=device(0).uuid, readings={UTILIZATION: 20}))
    store.apply(frame(monotonic_seconds=2, devices=swapped))
    assert history(store, 2, 0) == [10, 20]


def test_a_jump_back_in_time_starts_anew() -> None:
    store = at(100)
    store.apply(frame(monotonic_seconds=20, devices=(device(readings={UTILIZATION: 7}),)))
    assert history(store, 2) == [None, 7]


def test_a_device_that_is_gone_is_remembered_for_a_while_only() -> None:
    store = Store(bucket_seconds=1)
    store.apply(frame(monotonic_seconds=0, devices=(device(0), device(1))))
    store.apply(frame(monotonic_seconds=100, devices=(device(0),)))
    store.apply(frame(monotonic_seconds=100, devices=(device(0), device(1))))
    assert history(store, 101, 1)[0] == 87
    store.apply(frame(monotonic_seconds=1000, devices=(device(0),)))
    assert history(store, 1000, 1) == [None] * 1000


def test_unknown_device_has_no_history() -> None:
    assert Store().history("GPU-unknown", UTILIZATION, 3) == [None, None, None]


def test_clear() -> None:
    store = at(5)
    store.clear()
    assert store.frame is None
    assert history(store, 1) == [None]
