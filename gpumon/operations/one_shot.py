"""Frames of this host for a command: one, with what the probes report, or as many as the command needs."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from gpumon.core.metrics import ON_DEMAND_METRICS
from gpumon.core.model import Device, Frame
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.streams.base import Stream, SupportsOnDemand
from gpumon.streams.live import LiveStream

if TYPE_CHECKING:
    from gpumon.probe.messages import Probe

TIMEOUT_SECONDS: Final = 10.0
PROBE_TIMEOUT_SECONDS: Final = 0.5
"""A probe that has not reported by then, because its process is inside a long call, is left out."""
_INTERVAL_SECONDS: Final = 0.25
_ON_DEMAND_SECONDS: Final = 5.0
"""How long values that are read on demand are waited for: GPUs are sampled in turn, and a rate needs two samples."""
_COMPLETE_FRAMES: Final = 2
"""CPU utilization is a difference between two frames."""
SILENT: Final = Problem(
    ProblemCode.COLLECTOR_SILENT, "The collector did not respond.", "Try again; this host may be overloaded."
)


class HostSample(NamedTuple):
    """One sample of this host.

    Attributes:
        frame: The GPUs and the host.
        probes: The probes that have reported, by PID as gpumon sees it.
        problems: Why gpumon did not connect to some probes.
    """

    frame: Frame
    probes: "Mapping[int, Probe]"
    problems: tuple[Problem, ...] = ()


def sample_frame(stream: Stream | None = None, timeout: float = TIMEOUT_SECONDS, *, on_demand: bool = False) -> Frame:
    """Sample this host once.

    Host CPU and process CPU are differences, so the second frame is returned. A missing driver is reported with the
    first frame. A driver that does not respond is reported when the timeout has passed.

    Args:
        stream: A stream that has not been started; None for a live stream of this host. It is closed.
        timeout: Maximum wait in seconds.
        on_demand: Whether to sample what is read only on demand, too: activity, PCIe and NVLink rates, energy.

    Raises:
        CommandError: The collector did not send a frame within ``timeout`` seconds.
    """
    source = stream or LiveStream(_INTERVAL_SECONDS)
    source.start()
    try:
        frame = _complete_frame(source, timeout, on_demand=on_demand)
        if frame is None:
            raise CommandError(source.problem or SILENT, ExitCode.MISSING_PREREQUISITE)
        return frame
    finally:
        source.close()


def sample_with_probes(*, on_demand: bool = False) -> HostSample:
    """Sample this host and its probes once. A host without probes takes no longer than `sample_frame`.

    ``on_demand`` is that of `sample_frame`.

    Raises:
        CommandError: The collector did not send a frame.
    """
    from gpumon.probe.client import ProbeWatcher  # late: a frame alone needs no probe

    watcher = ProbeWatcher()
    deadline = time.monotonic() + PROBE_TIMEOUT_SECONDS
    watcher.start()
    try:
        frame = sample_frame(on_demand=on_demand)
        watcher.settle(deadline - time.monotonic())
        return HostSample(frame, watcher.probes, watcher.problems)
    finally:
        watcher.close()


def _complete_frame(source: Stream, timeout: float, *, on_demand: bool) -> Frame | None:
    """The first complete frame, or the latest frame when the timeout has passed."""
    deadline = time.monotonic() + timeout
    count = 0
    latest: Frame | None = None
    on_demand_until = time.monotonic() + _ON_DEMAND_SECONDS if on_demand else 0.0
    while (left := deadline - time.monotonic()) > 0 and source.inbox.arrived.wait(left):
        for arrival in source.inbox.drain():
            if isinstance(arrival, Frame):
                latest, count = arrival, count + 1
        if latest is not None and on_demand and isinstance(source, SupportsOnDemand):
            source.request_on_demand([device.key for device in latest.devices])
        if latest is None or not _is_complete(latest, count):
            continue
        if time.monotonic() >= on_demand_until or all(map(_has_on_demand, latest.devices)):
            return latest
    return latest


def _has_on_demand(device: Device) -> bool:
    """Whether each value that is read on demand is there, or will not come."""
    missing = [device.problems.get(metric.id) for metric in ON_DEMAND_METRICS if device.get(metric.id) is None]
    return not any(problem is not None and problem.code is ProblemCode.NOT_READ for problem in missing)


def _is_complete(frame: Frame, count: int) -> bool:
    """Whether waiting for another frame is useless; a driver that does not respond may still be starting."""
    problem = frame.problems.get("driver")
    if problem is None:
        return count >= _COMPLETE_FRAMES
    return problem.code is not ProblemCode.UNRESPONSIVE


FIRST_FRAME_SECONDS: Final = 10.0


class FrameSource:
    """Frames of a stream, one after the other."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._waiting: list[Frame] = []

    def next_frame(self, timeout: float) -> Frame | None:
        """The next frame; None after ``timeout`` seconds without one."""
        deadline = time.monotonic() + timeout
        while not self._waiting:
            left = deadline - time.monotonic()
            if left <= 0 or not self._stream.inbox.arrived.wait(left):
                return None
            self._waiting = [arrival for arrival in self._stream.inbox.drain() if isinstance(arrival, Frame)]
        return self._waiting.pop(0)

    def request_on_demand(self, frame: Frame) -> None:
        """Sample the values of all devices of a frame that are read only on demand, too, from now on."""
        if isinstance(self._stream, SupportsOnDemand):
            self._stream.request_on_demand([device.key for device in frame.devices])

    def frames(self, deadline: float | None = None) -> Iterator[Frame]:
        """Yield frames until ``deadline`` (monotonic seconds).

        Raises:
            CommandError: The collector sent no frame at all.
        """
        has_any = False
        while deadline is None or time.monotonic() < deadline:
            left = FIRST_FRAME_SECONDS if deadline is None else deadline - time.monotonic()
            frame = self.next_frame(min(FIRST_FRAME_SECONDS, max(0.0, left)))
            if frame is not None:
                has_any = True
                yield frame
            elif not has_any:
                raise CommandError(self._stream.problem or SILENT, ExitCode.MISSING_PREREQUISITE)


@contextmanager
def live_frames(interval: float, make: Callable[[float], Stream] = LiveStream) -> Iterator[FrameSource]:
    """Frames of this host; the collector ends with the block."""
    stream = make(interval)
    stream.start()
    try:
        yield FrameSource(stream)
    finally:
        stream.close()
