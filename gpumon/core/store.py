"""The state made of frames: the latest frame and the history of every device.

Only `Store.apply` writes frames; everything that draws reads.
"""

from typing import Final

from gpumon.core.device_use import FreeCheck, IdleSince, IdleTime, is_idle
from gpumon.core.episodes import Episodes, HistoryEvent, HistoryEventKind, event_log
from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.timeline import DEFAULT_HISTORY_SECONDS, Timeline
from gpumon.core.xids import xid_text

HISTORY_BUCKETS: Final = 180
"""Columns of the longest strip."""
BUCKET_SECONDS: Final = 4.0
"""Width of a column of a strip: strips move at this pace, whatever the interval."""

_FORGET_SECONDS: Final = 600.0
_PATIENCE_INTERVALS: Final = 2.5
_MIN_INTERVAL_SECONDS: Final = 1.0
"""Frames in quick succession may be merged in transit, so a second without a frame is not a gap."""


class DeviceHistory:
    """The history of one device.

    Args:
        history_seconds: How much is kept, in seconds.

    Attributes:
        timeline: Every metric.
        throttling: When each throttle reason was in force.
        events: What happened, oldest first.
        free: Whether the device is free.
        idle: Since when the device is idle.
        last_seen: When a frame last contained the device.
    """

    __slots__ = ("_history_seconds", "_state", "events", "free", "idle", "last_seen", "throttling", "timeline")

    def __init__(self, history_seconds: float) -> None:
        self.timeline = Timeline(history_seconds)
        self.throttling = Episodes()
        self.events = event_log()
        self.free = FreeCheck()
        self.idle = IdleTime()
        self.last_seen = 0.0
        self._history_seconds = history_seconds
        self._state: DeviceState | None = None

    def apply(self, device: Device, frame: Frame) -> None:
        """Add the readings of a device; anything but a fresh reading is a gap.

        Args:
            device: The device.
            frame: The frame that contains the device.
        """
        seconds = frame.monotonic_seconds
        interval = max(frame.interval_seconds, frame.sweep.seconds or 0.0)
        is_fresh = frame.is_fresh(device)
        self.last_seen = seconds
        self.timeline.add(seconds, device.readings if is_fresh else None, interval, device.ranges)
        patience = _PATIENCE_INTERVALS * max(interval, _MIN_INTERVAL_SECONDS)
        self.throttling.add(seconds, device.throttle_reasons if is_fresh else None, patience)
        self.free.add(device)
        self.idle.add(seconds, is_idle(device) if is_fresh else None, patience)
        for event in frame.events:
            if event.device_key == device.key:
                self.note(event.monotonic_seconds, HistoryEventKind.XID, xid_text(event.xid))
        is_state_known = "driver" not in frame.problems  # otherwise the state is that of the missing driver
        if is_state_known and device.state is not self._state:
            self._note_state(device, seconds)
            self.throttling.forget(seconds - self._history_seconds)

    def note(self, seconds: float, kind: HistoryEventKind, text: str) -> None:
        """Add an event."""
        self.events.append(HistoryEvent(seconds, kind, text))

    def _note_state(self, device: Device, seconds: float) -> None:
        before, self._state = self._state, device.state
        if before is None and device.state is DeviceState.OK:
            return
        text = "responds again" if device.state is DeviceState.OK else device.state.value
        self.note(seconds, HistoryEventKind.DEVICE, text)


class Store:
    """The latest frame and the history of every device.

    Args:
        bucket_seconds: Width of a column of the strips.
        history_seconds: How much of every metric is kept, in seconds.
    """

    def __init__(
        self, bucket_seconds: float = BUCKET_SECONDS, history_seconds: float = DEFAULT_HISTORY_SECONDS
    ) -> None:
        self.frame: Frame | None = None
        self.bucket_seconds = bucket_seconds
        self.history_seconds = history_seconds
        self._histories: dict[str, DeviceHistory] = {}
        self._driver_problem: Problem | None = None

    def apply(self, frame: Frame) -> None:
        """Add a frame. A frame from an earlier moment (a seek, another host) discards the history."""
        if self.frame is not None and frame.monotonic_seconds < self.frame.monotonic_seconds - self.bucket_seconds:
            self._histories.clear()
        self.frame = frame
        for device in frame.devices:
            history = self._histories.get(device.key)
            if history is None:
                history = self._histories[device.key] = DeviceHistory(self.history_seconds)
            history.apply(device, frame)
        self._note_driver(frame)
        if len(self._histories) > len(frame.devices):
            self._forget(frame.monotonic_seconds)

    def clear(self) -> None:
        """Discard everything."""
        self.frame = None
        self._driver_problem = None
        self._histories.clear()

    def of_device(self, key: str) -> DeviceHistory | None:
        """The history of a device, or None if no frame contained the device."""
        return self._histories.get(key)

    def idle_since(self, key: str) -> IdleSince | None:
        """Since when a device is idle, as far as frames show; None if it is not idle, or if that is unknown."""
        history = self._histories.get(key)
        return None if history is None else history.idle.since

    def is_free(self, key: str) -> bool:
        """Whether a device is free."""
        history = self._histories.get(key)
        return history is not None and history.free.is_free

    def history(self, key: str, metric: str, buckets: int, bucket_seconds: float | None = None) -> list[float | None]:
        """The newest ``buckets`` means of a device's metric, oldest first; None for a gap and for an unknown device.

        Args:
            key: The device.
            metric: Id of the metric.
            buckets: Number of means.
            bucket_seconds: Time of which each is the mean, if not that of the strips.
        """
        history = self._histories.get(key)
        if history is None:
            return [None] * buckets
        return history.timeline.recent_means(metric, buckets, bucket_seconds or self.bucket_seconds)

    def mark(self, key: str, text: str = "a workload began or ended") -> None:
        """Mark the moment of the latest frame in a device's history: a workload begins or ends there."""
        history = self._histories.get(key)
        if history is not None and self.frame is not None:
            history.note(self.frame.monotonic_seconds, HistoryEventKind.WORKLOAD, text)

    def marks(self, key: str, buckets: int) -> frozenset[int]:
        """The positions of marks among the newest ``buckets`` of a device; 0 is the oldest bucket."""
        history = self._histories.get(key)
        if history is None:
            return frozenset()
        first = self._bucket(history.last_seen) - buckets + 1
        marks = (event.seconds for event in history.events if event.kind is HistoryEventKind.WORKLOAD)
        return frozenset(bucket - first for bucket in map(self._bucket, marks) if bucket >= first)

    def _bucket(self, seconds: float) -> int:
        return int(seconds // self.bucket_seconds)

    def _note_driver(self, frame: Frame) -> None:
        """Note on every device that the driver is gone or is back; an instantaneous restart is one event."""
        before, self._driver_problem = self._driver_problem, frame.problems.get("driver")
        if self._driver_problem is not None:
            text = "" if before is not None else self._driver_problem.reason
        else:
            was_gone = before is not None and before.code is not ProblemCode.DRIVER_RESTARTED
            text = "the driver responds again" if was_gone else ""
        if text:
            for history in self._histories.values():
                history.note(frame.monotonic_seconds, HistoryEventKind.DRIVER, text)

    def _forget(self, seconds: float) -> None:
        """Discard the histories of devices that frames no longer contain."""
        gone = [key for key, history in self._histories.items() if seconds - history.last_seen > _FORGET_SECONDS]
        for key in gone:
            del self._histories[key]
