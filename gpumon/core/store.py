"""The one place where frames become state: the latest frame and the history of every device.

It is written by `Store.apply` alone and read by everything that draws.
"""

from collections import deque
from typing import Final

from gpumon.core.durations import HISTORY_SECONDS
from gpumon.core.episodes import Episodes, Event, EventKind, event_log
from gpumon.core.history import Ring
from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.timeline import Timeline
from gpumon.core.xids import xid_text

HISTORY_METRICS: Final = ("utilization_gpu_percent", "memory_used_bytes")
HISTORY_BUCKETS: Final = 180
_MOST_MARKS: Final = HISTORY_BUCKETS
BUCKET_SECONDS: Final = 4.0
_FORGET_SECONDS: Final = 600.0
_PATIENCE_INTERVALS: Final = 2.5
_LEAST_INTERVAL: Final = 1.0
"""Of frames that come in quick succession some may be merged on the way; a second without one is no gap."""


class DeviceHistory:
    """What is remembered of one device.

    Args:
        bucket_seconds: Width of a bucket of the strips.
        history_seconds: How much is remembered of everything else.

    Attributes:
        rings: The strips of `HISTORY_METRICS`.
        marks: Moments (monotonic seconds) marked on the strips.
        timeline: Every metric.
        throttling: When which throttle reason was in force.
        events: What happened.
        last_seen: When the device was last among those that there are.
    """

    __slots__ = ("_history_seconds", "_state", "events", "last_seen", "marks", "rings", "throttling", "timeline")

    def __init__(self, bucket_seconds: float, history_seconds: float) -> None:
        self.rings = {metric: Ring(HISTORY_BUCKETS, bucket_seconds) for metric in HISTORY_METRICS}
        self.marks: deque[float] = deque(maxlen=_MOST_MARKS)
        self.timeline = Timeline(history_seconds)
        self.throttling = Episodes()
        self.events = event_log()
        self.last_seen = 0.0
        self._history_seconds = history_seconds
        self._state: DeviceState | None = None

    def apply(
        self, device: Device, seconds: float, *, fresh: bool, patience_seconds: float, knows_state: bool = True
    ) -> None:
        """Adds the device's readings; anything but a fresh reading is a gap.

        Args:
            device: The device.
            seconds: The moment.
            fresh: Whether its readings are of this moment.
            patience_seconds: A longer silence than this parts what held before from what holds after.
            knows_state: Whether its state is its own, not that of a driver that has gone.
        """
        self.last_seen = seconds
        for metric, ring in self.rings.items():
            ring.add(seconds, device.get(metric) if fresh else None)
        self.timeline.add(seconds, device.readings if fresh else None)
        self.throttling.add(seconds, device.throttle_reasons if fresh else None, patience_seconds)
        if knows_state and device.state is not self._state:
            self._note_state(device, seconds)
            self.throttling.forget(seconds - self._history_seconds)

    def note(self, seconds: float, kind: EventKind, text: str) -> None:
        """Adds an event."""
        self.events.append(Event(seconds, kind, text))

    def _note_state(self, device: Device, seconds: float) -> None:
        before, self._state = self._state, device.state
        if before is None and device.state is DeviceState.OK:
            return
        answers = device.state is DeviceState.OK
        self.note(seconds, EventKind.DEVICE, "answers again" if answers else device.state.value)


class Store:
    """Latest frame and per-device history.

    Args:
        bucket_seconds: Width of a bucket of the strips; they move on at this pace, whatever the sample rate.
        history_seconds: How much is remembered of every metric.
    """

    def __init__(self, bucket_seconds: float = BUCKET_SECONDS, history_seconds: float = HISTORY_SECONDS) -> None:
        self.frame: Frame | None = None
        self.bucket_seconds = bucket_seconds
        self.history_seconds = history_seconds
        self._histories: dict[str, DeviceHistory] = {}
        self._driver_problem: Problem | None = None

    def apply(self, frame: Frame) -> None:
        """Takes a frame in. One from an earlier moment (a seek, another machine) starts the history anew."""
        if self.frame is not None and frame.monotonic_seconds < self.frame.monotonic_seconds - self.bucket_seconds:
            self._histories.clear()
        self.frame = frame
        seconds = frame.monotonic_seconds
        patience = _PATIENCE_INTERVALS * max(frame.interval_seconds, frame.sweep.seconds or 0.0, _LEAST_INTERVAL)
        for device in frame.devices:
            history = self._histories.get(device.key)
            if history is None:
                history = self._histories[device.key] = DeviceHistory(self.bucket_seconds, self.history_seconds)
            for event in frame.events:
                if event.device_key == device.key:
                    history.note(event.monotonic_seconds, EventKind.XID, xid_text(event.xid))
            history.apply(
                device,
                seconds,
                fresh=frame.is_fresh(device),
                patience_seconds=patience,
                knows_state="driver" not in frame.problems,
            )
        self._note_driver(frame)
        if len(self._histories) > len(frame.devices):
            self._forget(seconds)

    def clear(self) -> None:
        """Forgets everything."""
        self.frame = None
        self._driver_problem = None
        self._histories.clear()

    def history(self, key: str, metric: str, buckets: int) -> list[float | None]:
        """The newest ``buckets`` of a device's metric, oldest first; all None for an unknown device."""
        history = self._histories.get(key)
        return [None] * buckets if history is None else history.rings[metric].tail(buckets)

    def of_device(self, key: str) -> DeviceHistory | None:
        """All that is remembered of a device."""
        return self._histories.get(key)

    def mark(self, key: str, text: str = "a workload began or ended") -> None:
        """Marks the moment of the latest frame on a device's histories: something begins or ends there."""
        history = self._histories.get(key)
        if history is not None and self.frame is not None:
            history.marks.append(self.frame.monotonic_seconds)
            history.note(self.frame.monotonic_seconds, EventKind.WORKLOAD, text)

    def marks(self, key: str, buckets: int) -> frozenset[int]:
        """Which of the newest ``buckets`` of a device hold a mark, the oldest of them being 0."""
        history = self._histories.get(key)
        if history is None:
            return frozenset()
        first = self._bucket(history.last_seen) - buckets + 1
        places = {self._bucket(seconds) - first for seconds in history.marks}
        return frozenset(place for place in places if place >= 0)

    def _bucket(self, seconds: float) -> int:
        return int(seconds // self.bucket_seconds)

    def _note_driver(self, frame: Frame) -> None:
        """Notes on every device that the driver has gone, or is back; a restart that took no time is one event."""
        before, self._driver_problem = self._driver_problem, frame.problems.get("driver")
        if self._driver_problem is not None:
            text = "" if before is not None else self._driver_problem.reason
        else:
            has_been_gone = before is not None and before.code is not ProblemCode.DRIVER_RESTARTED
            text = "the driver answers again" if has_been_gone else ""
        if text:
            for history in self._histories.values():
                history.note(frame.monotonic_seconds, EventKind.DRIVER, text)

    def _forget(self, seconds: float) -> None:
        gone = [key for key, held in self._histories.items() if seconds - held.last_seen > _FORGET_SECONDS]
        for key in gone:
            del self._histories[key]
