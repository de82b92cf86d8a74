"""On a real GPU: the alerts of a healthy host while it copies and while it computes."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.core.model import Frame
from gpumon.health.alerts import Alert, AlertHistory, Severity
from gpumon.streams.live import LiveStream

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180), pytest.mark.xdist_group("gpu")]

LOAD = Path(__file__).with_name("load.py")
SAMPLED_SECONDS = 60.0


@contextmanager
def load(role: str) -> Iterator[None]:
    """A load on the first GPU; yields when it works."""
    command = [sys.executable, str(LOAD), role, "0", str(SAMPLED_SECONDS + 60)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            process.kill()


def alerts_under(role: str) -> dict[str, Alert]:
    """Every alert of the first GPU during a load, by its ID."""
    history = AlertHistory()
    seen: dict[str, Alert] = {}
    stream = LiveStream(1.0)
    stream.start()
    try:
        with load(role):
            until = time.monotonic() + SAMPLED_SECONDS
            while time.monotonic() < until:
                stream.inbox.arrived.wait(1.0)
                frames = [arrival for arrival in stream.inbox.drain() if isinstance(arrival, Frame)]
                alerts = [alert for frame in frames for alert in history.check(frame)]
                seen |= {alert.id: alert for alert in alerts if alert.device_index == 0}
    finally:
        stream.close()
    return seen


def test_copies_are_busy_without_sm_activity_and_only_information() -> None:
    seen = alerts_under("copies")
    assert {alert.severity for alert in seen.values()} == {Severity.INFO}
    assert "busy_without_sm" in seen


def test_full_load_is_only_information() -> None:
    seen = alerts_under("matmul")
    assert {alert.severity for alert in seen.values()} <= {Severity.INFO}
    assert "busy_without_sm" not in seen
