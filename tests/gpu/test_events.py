"""Waiting for Xids on a real driver: the driver accepts the registration, and the wait delays no other call."""

import time

import pytest

from gpumon.collect.xids import PAUSE_SECONDS, WAIT_MILLISECONDS
from gpumon.core.model import Frame
from gpumon.streams.base import Discontinuity
from gpumon.streams.live import LiveStream

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("gpu")]


def test_the_driver_accepts_the_registration_and_the_wait_delays_no_other_call() -> None:
    stream = LiveStream(0.2)
    stream.start()
    stream.set_call_stats(True)
    frames: list[Frame] = []
    deadline = time.monotonic() + PAUSE_SECONDS + 6 * WAIT_MILLISECONDS / 1000 + 2
    try:
        while (left := deadline - time.monotonic()) > 0:
            stream.inbox.arrived.wait(left)
            frames += [arrival for arrival in stream.inbox.drain() if not isinstance(arrival, Discontinuity)]
    finally:
        stream.close()
    costs = {cost.call: cost for cost in frames[-1].sweep.calls_by_name}
    registered = costs["nvmlDeviceRegisterEvents"]
    assert registered.count == len([device for device in frames[-1].devices if device.instance is None])
    assert registered.errors == 0
    slowest = max((cost for cost in costs.values() if "Init" not in cost.call), key=lambda cost: cost.longest_seconds)
    assert slowest.longest_seconds < WAIT_MILLISECONDS / 1000 / 2, f"{slowest.call} was delayed by the wait"
    assert stream.replaced == 0
