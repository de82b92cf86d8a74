"""Since when a device is idle, from the frames of a store."""

from collections.abc import Sequence

import pytest

from gpumon.core.model import Device, DeviceState
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.store import Store
from tests.builders import device, frame

UTILIZATION = "utilization_gpu_percent"
STALE = {UTILIZATION: Problem(ProblemCode.STALE, "The last value is shown.")}
LOST = device(state=DeviceState.LOST, readings={UTILIZATION: 0})
IDLE, BUSY, UNKNOWN = (device(readings={UTILIZATION: percent}) for percent in (0, 50, None))


def since(devices: Sequence[Device], interval: float = 1.0, store: Store | None = None) -> tuple[float, bool] | None:
    """Since when the device is idle after one frame for each item."""
    store = store or Store()
    for number, state in enumerate(devices):
        store.apply(frame(monotonic_seconds=100 + number * interval, interval_seconds=interval, devices=(state,)))
    return store.idle_since(device().key)


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([IDLE], (100, True)),
        ([IDLE] * 50, (100, True)),
        ([BUSY], None),
        ([BUSY, IDLE], (101, False)),
        ([BUSY, IDLE, IDLE, IDLE], (101, False)),
        ([IDLE, IDLE, BUSY], None),
        ([IDLE, BUSY, IDLE], (102, False)),
        ([UNKNOWN], None),
        ([IDLE, UNKNOWN], None),
        ([LOST], None),
        ([IDLE, LOST], None),
    ],
)
def test_idle_time_begins_with_the_first_sample_without_work(
    devices: list[Device], expected: tuple[float, bool] | None
) -> None:
    assert since(devices) == expected


@pytest.mark.parametrize("unknown", [UNKNOWN, LOST, device(readings={UTILIZATION: 0}, problems=STALE)])
def test_unknown_is_not_idle(unknown: Device) -> None:
    assert since([BUSY, IDLE, unknown, unknown, IDLE, IDLE]) == (104, True), "idle for longer, or not"
    assert since([BUSY, IDLE, unknown, IDLE]) == (101, False), "one late sample is no gap"
    assert since([BUSY, unknown, unknown, IDLE]) == (103, True)


@pytest.mark.parametrize(("interval", "gap", "expected"), [(1.0, 2.5, 101), (1.0, 3.0, 104), (10.0, 25.0, 110)])
def test_a_time_without_frames_is_a_gap(interval: float, gap: float, expected: float) -> None:
    store = Store()
    since([BUSY, IDLE], interval, store)
    late = 100 + interval + gap
    store.apply(frame(monotonic_seconds=late, interval_seconds=interval, devices=(IDLE,)))
    assert store.idle_since(device().key) == (expected, expected == late)


def test_a_device_that_is_missing_from_frames_is_not_idle_meanwhile() -> None:
    store = Store()
    since([BUSY, IDLE], store=store)
    for second in range(102, 130):
        store.apply(frame(monotonic_seconds=second, devices=(device(1),)))
    store.apply(frame(monotonic_seconds=130, devices=(IDLE, device(1))))
    assert store.idle_since(device().key) == (130, True)


@pytest.mark.parametrize(("activity", "expected"), [(0.0, True), (0.5, True), (30.0, False)])
def test_sm_activity_is_work(activity: float, expected: bool) -> None:
    sampled = device(readings={UTILIZATION: 0, "sm_activity_percent": activity})
    assert (since([sampled]) is not None) is expected


def test_a_jump_back_in_time_and_a_new_stream_forget() -> None:
    store = Store()
    since([IDLE] * 50, store=store)
    store.apply(frame(monotonic_seconds=20, devices=(IDLE,)))
    assert store.idle_since(device().key) == (20, True)
    store.clear()
    assert store.idle_since(device().key) is None


def test_devices_are_apart() -> None:
    store = Store()
    for second in range(100, 110):
        store.apply(frame(monotonic_seconds=second, devices=(IDLE, device(1))))
    assert store.idle_since(device(0).key) == (100, True)
    assert store.idle_since(device(1).key) is None
    assert store.idle_since("GPU-unknown") is None
