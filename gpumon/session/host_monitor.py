"""The newest state of this host, for programs that ask for it at any time: frame, alerts, processes, probes, Xids."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.core.model import DeviceEvent, Frame
from gpumon.core.problems import Problem
from gpumon.health.alerts import DEFAULT_THRESHOLDS, Alert, AlertHistory, Thresholds
from gpumon.operations.process_details import ProcessOrigin
from gpumon.probe.client import ProbeWatcher
from gpumon.probe.messages import Probe
from gpumon.session.background import run_in_background
from gpumon.session.process_registry import Identity, ProcessRegistry
from gpumon.streams.base import Stream, SupportsOnDemand

_TICK_SECONDS: Final = 0.5
_MAX_XIDS: Final = 4096
"""Pairs of a device and an Xid that are counted; there are about 200 Xids."""


class HostState(NamedTuple):
    """What is known about this host at one moment.

    Attributes:
        frame: The newest frame, or None before the first.
        age_seconds: How long ago it arrived; None before the first.
        problem: What is wrong with the source of the frames, or None.
        alerts: The alerts that stand, worst first.
        origins: What started each process.
        probes: The connected probes, by PID as gpumon sees it.
        xids: Number of Xids since gpumon started, by `Device.key` and Xid; what came last is the last.
    """

    frame: Frame | None = None
    age_seconds: float | None = None
    problem: Problem | None = None
    alerts: tuple[Alert, ...] = ()
    origins: Mapping[Identity, ProcessOrigin] = MappingProxyType({})
    probes: Mapping[int, Probe] = MappingProxyType({})
    xids: Mapping[tuple[str, int], int] = MappingProxyType({})


class HostMonitor:
    """Follows a stream in a thread.

    Args:
        stream: A stream of this host that has not been started.
        thresholds: Thresholds of the alerts.
        probes: The probes of this host; not started yet.
    """

    def __init__(
        self, stream: Stream, thresholds: Thresholds = DEFAULT_THRESHOLDS, probes: ProbeWatcher | None = None
    ) -> None:
        self._stream = stream
        self._probes = probes or ProbeWatcher()
        self._alerts = AlertHistory(thresholds)
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._processes = ProcessRegistry(partial(run_in_background, deliver=self._calls.put), lambda: None)
        self._processes.set_shown(is_shown=True)
        self._xids: Counter[tuple[str, int]] = Counter()
        self._state = HostState()
        self._arrived_monotonic = 0.0
        self._has_frame = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpumon-monitor", daemon=True)

    def start(self) -> None:
        """Start to read frames and to search for probes."""
        self._probes.start()
        self._stream.start()
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._closing.set()
        self._stream.inbox.ring()
        self._stream.close()
        self._probes.close()

    def wait_for_frame(self, timeout: float) -> bool:
        """Whether a frame has arrived within ``timeout`` seconds."""
        return self._has_frame.wait(timeout)

    def state(self) -> HostState:
        """The state now; may be called from any thread."""
        state = self._state
        age = None if state.frame is None else max(0.0, time.monotonic() - self._arrived_monotonic)
        return state._replace(age_seconds=age, problem=self._stream.problem, probes=self._probes.probes)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._stream.inbox.arrived.wait(_TICK_SECONDS)
            for arrival in self._stream.inbox.drain():
                if isinstance(arrival, Frame):
                    self._apply(arrival)
            self._probes.inbox.drain()  # the newest readings are in `probes`
            self._run_calls()

    def _apply(self, frame: Frame) -> None:
        if isinstance(self._stream, SupportsOnDemand):
            self._stream.request_on_demand([device.key for device in frame.devices])
        self._processes.observe(frame)
        for event in frame.events:
            self._count(event)
        self._arrived_monotonic = time.monotonic()
        alerts = tuple(self._alerts.check(frame))
        self._publish(frame=frame, alerts=alerts, xids=dict(self._xids))
        self._has_frame.set()

    def _count(self, event: DeviceEvent) -> None:
        key = (event.device_key, event.xid)
        if key in self._xids or len(self._xids) < _MAX_XIDS:
            self._xids[key] = self._xids.pop(key, 0) + 1

    def _run_calls(self) -> None:
        """Call what a background thread has delivered."""
        try:
            while True:
                self._calls.get_nowait()()
        except Empty:
            self._publish(origins=self._processes.state.origins)

    def _publish(self, **changed: object) -> None:
        self._state = self._state._replace(**changed)  # type: ignore[arg-type]
