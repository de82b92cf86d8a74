"""On a real GPU whose screen is not open: SM activity distinguishes copies from computation."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpumon.core.device_use import BUSY_PERCENT, NO_WORK_PERCENT
from gpumon.core.model import Device, Frame
from gpumon.streams.live import LiveStream

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180), pytest.mark.xdist_group("gpu")]

LOAD = Path(__file__).with_name("load.py")
METRIC = "sm_activity_percent"


@pytest.mark.parametrize(("role", "computes"), [("copies", False), ("matmul", True)])
def test_a_busy_gpu_shows_whether_it_computes(role: str, computes: bool) -> None:
    pytest.importorskip("torch")
    stream = LiveStream(1.0)
    with subprocess.Popen([sys.executable, str(LOAD), role, "0", "90"]) as load:
        try:
            stream.start()
            device = busy_device(stream)
        finally:
            stream.close()
            load.kill()
    activity = device.readings[METRIC]
    assert activity > 50 if computes else activity < NO_WORK_PERCENT
    assert "sm_occupancy_percent" not in device.readings, "sampled only on request"


def busy_device(stream: LiveStream) -> Device:
    """GPU 0 when it has been busy for longer than the period over which the driver averages."""
    deadline = time.monotonic() + 75
    busy_since = None
    while time.monotonic() < deadline and stream.inbox.arrived.wait(5):
        for frame in stream.inbox.drain():
            if not isinstance(frame, Frame) or not frame.devices:
                continue
            device = frame.devices[0]
            if (device.get("utilization_gpu_percent") or 0) < BUSY_PERCENT:
                busy_since = None
            elif busy_since is None:
                busy_since = frame.monotonic_seconds
            elif frame.monotonic_seconds - busy_since > 25 and METRIC in device.readings:
                return device
    raise AssertionError("GPU 0 was not busy long enough")
