"""What is remembered of each device, for rules that compare with earlier moments."""

from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from gpumon.core.model import Device, DeviceEvent, Process

TRACKED_COUNTERS: Final = (
    "ecc_corrected_volatile_count",
    "ecc_uncorrected_volatile_count",
    "ecc_uncorrected_aggregate_count",
    "pcie_replay_count",
)
"""Counters for which a rule needs the rate."""
QUIET_SECONDS: Final = 600.0
"""A counter that has not risen for this long is at rest, and a later rise is counted from there."""
TREND_SECONDS: Final = 600.0
"""How much of a process's memory history is kept."""
_MAX_XIDS: Final = 32
_MAX_PROCESSES: Final = 256
_POINT_SECONDS: Final = 10.0
_MAX_POINTS: Final = int(TREND_SECONDS / _POINT_SECONDS) + 1
_PARTS: Final = 4
_MIN_SHARE_OF_A_PART: Final = 0.1
"""Share of the total growth that each part must have. Memory that is allocated at the start and then kept has parts
without growth."""
_MAX_GIVEN_BACK: Final = 0.05
"""A process that gives back more than this share of what it allocated does not leak."""


class RisingCounter:
    """A counter that only rises, until the driver is loaded again.

    Attributes:
        rest_seconds: When the counter was last at rest.
        rest_value: Its value then.
        read_seconds: When it was last read.
        value: Its latest value.
        rose_seconds: When it last rose, or None if it never has.
    """

    __slots__ = ("read_seconds", "rest_seconds", "rest_value", "rose_seconds", "value")

    def __init__(self, seconds: float, value: float) -> None:
        self.rest_seconds = self.read_seconds = seconds
        self.rest_value = self.value = value
        self.rose_seconds: float | None = None

    def record(self, seconds: float, value: float) -> None:
        """Records a reading. A lower one starts the counter again: the driver was reloaded."""
        if value < self.value:
            self.rest_seconds, self.rest_value, self.rose_seconds = seconds, value, None
        elif value > self.value:
            if self.rose_seconds is None or seconds - self.rose_seconds > QUIET_SECONDS:
                self.rest_seconds, self.rest_value = self.read_seconds, self.value
            self.rose_seconds = seconds
        self.read_seconds, self.value = seconds, value

    def rise(self, now: float) -> float:
        """How much the counter has risen since it was last at rest; 0 while it is at rest."""
        if self.rose_seconds is None or now - self.rose_seconds > QUIET_SECONDS:
            return 0.0
        return self.value - self.rest_value

    def rate(self, now: float, min_seconds: float) -> float:
        """The rise per second since the counter was last at rest, averaged over at least ``min_seconds``."""
        return self.rise(now) / max(now - self.rest_seconds, min_seconds)


class Growth(NamedTuple):
    """The growth of a process's memory.

    Attributes:
        bytes: How much was added.
        seconds: In what time.
        bytes_per_second: The slope of the least-squares line.
    """

    bytes: float
    seconds: float
    bytes_per_second: float


class MemoryTrend:
    """The memory of a process over the last ten minutes, one point every ten seconds."""

    __slots__ = ("_age_seconds", "_points")

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=_MAX_POINTS)
        self._age_seconds = 0.0

    def add(self, seconds: float, memory_bytes: float, age_seconds: float | None) -> None:
        """Adds a point. A process that is younger than before is another process with the same PID."""
        age = age_seconds or 0.0
        if age < self._age_seconds - 1.0:
            self._points.clear()
        self._age_seconds = age
        if not self._points or seconds - self._points[-1][0] >= _POINT_SECONDS:
            self._points.append((seconds, memory_bytes))

    def growth(self, min_seconds: float, min_bytes: float) -> Growth | None:
        """The growth, if every part of the time has its share and hardly anything is given back; else None."""
        points = self._points
        if len(points) < 2 * _PARTS:
            return None
        (begin, first), (end, last) = points[0], points[-1]
        growth, seconds = last - first, end - begin
        if growth < max(min_bytes, 1.0) or seconds < min_seconds or not _is_steady([held for _, held in points]):
            return None
        return Growth(growth, seconds, _slope(list(points)))


def _is_steady(held: list[float]) -> bool:
    """Whether every part of the time has its share of the growth, and hardly anything is given back."""
    growth = held[-1] - held[0]
    given_back = sum(before - after for before, after in pairwise(held) if after < before)
    if given_back > _MAX_GIVEN_BACK * (growth + given_back):
        return False
    marks = [held[part * (len(held) - 1) // _PARTS] for part in range(_PARTS + 1)]
    return all(after - before >= _MIN_SHARE_OF_A_PART * growth for before, after in pairwise(marks))


def _slope(points: list[tuple[float, float]]) -> float:
    """The slope of the least-squares line."""
    count = len(points)
    mean_seconds = sum(seconds for seconds, _ in points) / count
    mean_held = sum(held for _, held in points) / count
    spread = sum((seconds - mean_seconds) ** 2 for seconds, _ in points)
    return sum((seconds - mean_seconds) * (held - mean_held) for seconds, held in points) / spread


class XidCount:
    """How often one Xid has occurred.

    Attributes:
        count: How often.
        last_seconds: When it last occurred, in monotonic seconds.
    """

    __slots__ = ("count", "last_seconds")

    def __init__(self) -> None:
        self.count = 0
        self.last_seconds = 0.0


class DeviceTracker:
    """What is remembered of one device. Rules only read it.

    Attributes:
        now: Monotonic seconds of the latest frame.
        counters: By metric id.
        xids: By NVIDIA's number.
        trends: Memory of the device's processes, by PID.
        max_nvlinks: The largest number of NVLink links that was ever up.
        max_nvlinks_of_product: The same over all GPUs of the same product on this host.
    """

    __slots__ = ("counters", "max_nvlinks", "max_nvlinks_of_product", "now", "trends", "xids")

    def __init__(self) -> None:
        self.now = 0.0
        self.counters: dict[str, RisingCounter] = {}
        self.xids: dict[int, XidCount] = {}
        self.trends: dict[int, MemoryTrend] = {}
        self.max_nvlinks = 0.0
        self.max_nvlinks_of_product = 0.0

    def record_readings(self, device: Device, now: float) -> None:
        """Records readings that belong to this moment."""
        readings = device.readings
        for metric in TRACKED_COUNTERS:
            value = readings.get(metric)
            if value is None:
                continue
            counter = self.counters.get(metric)
            if counter is None:
                self.counters[metric] = RisingCounter(now, value)
            elif value != counter.value:
                counter.record(now, value)
            else:
                counter.read_seconds = now
        self.max_nvlinks = max(self.max_nvlinks, readings.get("nvlink_links_count", 0.0))
        if device.processes is not None:
            self._record_processes(device.processes[:_MAX_PROCESSES], now)

    def record_events(self, events: Iterable[DeviceEvent]) -> None:
        """Records Xids of this device."""
        for event in events:
            if event.xid in self.xids or len(self.xids) < _MAX_XIDS:
                xid = self.xids.setdefault(event.xid, XidCount())
                xid.count += 1
                xid.last_seconds = max(xid.last_seconds, event.monotonic_seconds)

    def forget_xids(self, before_seconds: float) -> None:
        """Forgets the Xids that last occurred before a moment."""
        for number in [number for number, xid in self.xids.items() if xid.last_seconds < before_seconds]:
            del self.xids[number]

    def _record_processes(self, processes: tuple[Process, ...], now: float) -> None:
        trends = self.trends
        for process in processes:
            if process.memory_bytes is not None:
                trend = trends.get(process.pid)
                if trend is None:
                    trend = trends[process.pid] = MemoryTrend()
                trend.add(now, process.memory_bytes, process.age_seconds)
        if len(trends) > len(processes):
            pids = {process.pid for process in processes}
            for pid in [pid for pid in trends if pid not in pids]:
                del trends[pid]
