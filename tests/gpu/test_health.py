"""On a real GPU: what the rules say of a machine that is well, while it copies and while it computes."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.core.model import Frame
from gpumon.diagnosis.health import Alert, HealthHistory, Severity
from gpumon.streams.live import LiveStream

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180), pytest.mark.xdist_group("gpu")]

LOAD = Path(__file__).with_name("load.py")
WATCHED_SECONDS = 60.0


@contextmanager
def load(role: str) -> Iterator[None]:
    """A load on the first GPU, from when it has begun."""
    command = [sys.executable, str(LOAD), role, "0", str(WATCHED_SECONDS + 60)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            started.kill()


def alerts_under(role: str) -> dict[str, Alert]:
    """Every alert about the first GPU during a load, by its name."""
    health = HealthHistory()
    seen: dict[str, Alert] = {}
    stream = LiveStream(1.0)
    stream.start()
    try:
        with load(role):
            until = time.monotonic() + WATCHED_SECONDS
            while time.monotonic() < until:
                stream.inbox.arrived.wait(1.0)
                frames = [each for each in stream.inbox.drain() if isinstance(each, Frame)]
                alerts = [alert for each in frames for alert in health.check(each)]
                seen |= {alert.id: alert for alert in alerts if alert.device_index == 0}
    finally:
        stream.close()
    return seen


def test_copies_are_busy_without_work_for_the_multiprocessors_and_nothing_is_wrong() -> None:
    seen = alerts_under("copies")
    assert {alert.severity for alert in seen.values()} == {Severity.INFO}
    assert "busy_without_sm" in seen


def test_full_load_is_at_most_information() -> None:
    seen = alerts_under("matmul")
    assert {alert.severity for alert in seen.values()} <= {Severity.INFO}
    assert "busy_without_sm" not in seen
