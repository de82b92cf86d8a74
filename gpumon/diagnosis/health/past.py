"""What is remembered of a device for the rules that compare with earlier moments."""

from collections.abc import Iterable
from typing import Final

from gpumon.core.model import Device, DeviceEvent
from gpumon.diagnosis.health.trend import Trend

COUNTERS: Final = (
    "ecc_corrected_volatile_count",
    "ecc_uncorrected_volatile_count",
    "ecc_uncorrected_aggregate_count",
    "pcie_replay_count",
)
"""Counters of which it matters whether they rise."""
QUIET_SECONDS: Final = 600.0
"""A counter that has not risen for so long is at rest; what comes later is another story."""
_MOST_XIDS: Final = 32
_MOST_PROCESSES: Final = 256


class Counter:
    """A number that only rises.

    Args:
        seconds: When it was first seen.
        value: What it was.

    Attributes:
        begun_seconds: When it was last known to be at rest.
        begun_value: What it was then.
        seen_seconds: When it was last read.
        value: What it is.
        rose_seconds: When it last rose; None if it never has.
    """

    __slots__ = ("begun_seconds", "begun_value", "rose_seconds", "seen_seconds", "value")

    def __init__(self, seconds: float, value: float) -> None:
        self.begun_seconds = self.seen_seconds = seconds
        self.begun_value = self.value = value
        self.rose_seconds: float | None = None

    def take(self, seconds: float, value: float) -> None:
        """Takes a reading in. One that is lower begins anew: the driver was loaded again."""
        if value < self.value:
            self.begun_seconds, self.begun_value, self.rose_seconds = seconds, value, None
        elif value > self.value:
            if self.rose_seconds is None or seconds - self.rose_seconds > QUIET_SECONDS:
                self.begun_seconds, self.begun_value = self.seen_seconds, self.value
            self.rose_seconds = seconds
        self.seen_seconds, self.value = seconds, value

    def rise(self, now: float) -> float:
        """By how much it has risen since it was last at rest; 0 while it is."""
        if self.rose_seconds is None or now - self.rose_seconds > QUIET_SECONDS:
            return 0.0
        return self.value - self.begun_value

    def rate(self, now: float, least_seconds: float) -> float:
        """How much it rises in a second, over the time since then, or over ``least_seconds`` where that is longer."""
        return self.rise(now) / max(now - self.begun_seconds, least_seconds)


class XidSeen:
    """An Xid that has come, once or more often.

    Attributes:
        count: How often.
        last_seconds: When it came last, by the monotonic clock.
    """

    __slots__ = ("count", "last_seconds")

    def __init__(self) -> None:
        self.count = 0
        self.last_seconds = 0.0


class Past:
    """What is remembered of one device. `take` alone writes it; rules read it.

    Attributes:
        now: Monotonic seconds of the latest frame.
        counters: By metric.
        xids: By NVIDIA's number.
        trends: Memory of its processes, by PID.
        most_nvlinks: Most NVLink links that were ever up.
        most_nvlinks_alike: Most of them on any GPU of the same product beside it.
    """

    __slots__ = ("counters", "most_nvlinks", "most_nvlinks_alike", "now", "trends", "xids")

    def __init__(self) -> None:
        self.now = 0.0
        self.counters: dict[str, Counter] = {}
        self.xids: dict[int, XidSeen] = {}
        self.trends: dict[int, Trend] = {}
        self.most_nvlinks = 0.0
        self.most_nvlinks_alike = 0.0

    def take(self, device: Device, now: float) -> None:
        """Takes fresh readings in."""
        readings = device.readings
        for metric in COUNTERS:
            value = readings.get(metric)
            if value is None:
                continue
            counter = self.counters.get(metric)
            if counter is None:
                self.counters[metric] = Counter(now, value)
            elif value != counter.value:
                counter.take(now, value)
            else:
                counter.seen_seconds = now
        self.most_nvlinks = max(self.most_nvlinks, readings.get("nvlink_links_count", 0.0))
        if device.processes is not None:
            self._take_processes(device, now)

    def take_events(self, events: Iterable[DeviceEvent]) -> None:
        """Takes in the Xids that the driver has told of it."""
        for event in events:
            if event.xid in self.xids or len(self.xids) < _MOST_XIDS:
                seen = self.xids.setdefault(event.xid, XidSeen())
                seen.count += 1
                seen.last_seconds = max(seen.last_seconds, event.monotonic_seconds)

    def forget_xids(self, before_seconds: float) -> None:
        """Forgets those that have not come since a moment."""
        for xid in [xid for xid, seen in self.xids.items() if seen.last_seconds < before_seconds]:
            del self.xids[xid]

    def _take_processes(self, device: Device, now: float) -> None:
        trends = self.trends
        processes = (device.processes or ())[:_MOST_PROCESSES]
        for process in processes:
            if process.memory_bytes is not None:
                trend = trends.get(process.pid)
                if trend is None:
                    trend = trends[process.pid] = Trend()
                trend.add(now, process.memory_bytes, process.age_seconds)
        if len(trends) > len(processes):
            there = {process.pid for process in processes}
            for pid in [pid for pid in trends if pid not in there]:
                del trends[pid]
