"""`gpumon.api`: stable names, frames on the stand-in host, threads, and collectors that end."""

import gc
import threading
import time

import pytest

import gpumon.api
from gpumon.api import FrameIterator, GpumonError
from gpumon.core.problems import ProblemCode
from gpumon.operations import frame_source
from tests import builders
from tests.nvml_mock import NvmlMock
from tests.ui.fakes import FakeLive

NAMES = {
    "ComputeMode", "Device", "DeviceEvent", "DeviceState", "Frame", "FrameIterator", "GpumonError", "Host",
    "MigInstance",
    "Problem", "ProblemCode", "Process", "ProcessKind", "Switch", "frames", "snapshot",
}  # fmt: skip
"""A name that is gone, or has another meaning, breaks the scripts of users."""


@pytest.fixture
def host(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in nvml_mock.environment(gpus=2).items():
        monkeypatch.setenv(name, value)


def test_the_names_are_stable() -> None:
    assert set(gpumon.api.__all__) == NAMES
    assert all(hasattr(gpumon.api, name) for name in NAMES)


def test_a_snapshot(host: None) -> None:
    frame = gpumon.api.snapshot()
    assert [gpu.index for gpu in frame.gpus] == [0, 1]
    assert frame.gpus[0].get("power_watts") is not None


def test_without_a_driver_the_frame_has_the_reason(nvml_mock: NvmlMock, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in nvml_mock.environment_without_library().items():
        monkeypatch.setenv(name, value)
    frame = gpumon.api.snapshot()
    assert frame.devices == ()
    assert frame.problems["driver"].code is ProblemCode.LIBRARY_NOT_FOUND


def test_frames_arrive_one_after_the_other(host: None) -> None:
    with gpumon.api.frames(interval=0.1) as frames:
        moments = [frame.monotonic_seconds for frame, _ in zip(frames, range(4), strict=False)]
    assert moments == sorted(set(moments))
    assert list(frames) == [], "closed"


@pytest.mark.parametrize("interval", [0.0, -1.0, 1e9, float("nan")])
def test_intervals_out_of_range(interval: float) -> None:
    with pytest.raises(ValueError, match=r"from 0\.1 to 3600"):
        gpumon.api.frames(interval)


def test_a_loop_that_is_left_closes_the_collector() -> None:
    stream = FakeLive()
    stream.put(builders.frame())
    for _ in FrameIterator(stream):
        break
    gc.collect()
    assert (stream.started, stream.closed) == (1, 1)


def test_closing_in_another_thread_ends_a_waiting_loop() -> None:
    stream = FakeLive()
    frames = FrameIterator(stream)
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.extend(frames))
    thread.start()
    stream.put(builders.frame())
    time.sleep(0.1)
    frames.close()
    frames.close()
    thread.join(5)
    assert not thread.is_alive()
    assert len(seen) == 1
    assert stream.closed == 1


def test_two_threads_share_an_iterator() -> None:
    stream = FakeLive()
    frames = FrameIterator(stream)
    seen: list[float] = []
    threads = [
        threading.Thread(target=lambda: seen.extend(frame.monotonic_seconds for frame in frames)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for second in range(50):
        stream.put(builders.frame(monotonic_seconds=float(second)))
        time.sleep(0.002)
    time.sleep(0.6)
    frames.close()
    for thread in threads:
        thread.join(5)
    assert len(seen) == len(set(seen))
    assert 49.0 in seen


def test_a_silent_collector_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpumon.api, "FIRST_FRAME_SECONDS", 0.2)
    stream = FakeLive()
    with pytest.raises(GpumonError, match="did not respond") as raised:
        next(FrameIterator(stream))
    assert raised.value.problem.code is ProblemCode.COLLECTOR_SILENT
    assert stream.closed == 1
    assert frame_source.FIRST_FRAME_SECONDS == 10.0
