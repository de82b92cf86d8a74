"""Mean, minimum and maximum of readings over the frames of a time range."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from gpumon.core.model import Frame, Process

_PROCESS_FIELDS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "memory_bytes": sum, "sm_percent": fmean, "cpu_percent": max, "host_memory_bytes": max,
}  # fmt: skip
"""Fields of a process, and one value of those on its GPUs: what it does on the host is the same on each."""


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """A metric over a time range.

    Attributes:
        mean: Mean of the samples, in the metric's unit.
        minimum: Smallest sample.
        maximum: Largest sample.
        count: Number of samples; stale and missing ones do not count.
    """

    mean: float
    minimum: float
    maximum: float
    count: int


@dataclass(frozen=True, slots=True)
class HostSummary:
    """What a host measured over a time range, such as an epoch.

    Attributes:
        tag: The name that the caller gave.
        seconds: Time between the first and the last frame.
        frames: Number of frames.
        devices: By the label of the device, such as ``0`` or ``1:0``, then by metric.
        host: By field of the host, such as ``cpu_percent``.
        processes: By PID, then by field of `Process`: memory is the sum of all GPUs, ``sm_percent`` the mean.
    """

    tag: str
    seconds: float
    frames: int
    devices: Mapping[str, Mapping[str, MetricSummary]]
    host: Mapping[str, MetricSummary]
    processes: Mapping[int, Mapping[str, MetricSummary]]

    def flat(self) -> dict[str, float]:
        """One number for each name, for loggers: ``epoch/gpu 0/power_watts/mean``."""
        groups = {**{f"gpu {label}": metrics for label, metrics in self.devices.items()}, "host": self.host}
        groups |= {f"pid {pid}": metrics for pid, metrics in self.processes.items()}
        return {
            "/".join(filter(None, (self.tag, group, metric, kind))): value
            for group, metrics in groups.items()
            for metric, summary in metrics.items()
            for kind, value in (("mean", summary.mean), ("min", summary.minimum), ("max", summary.maximum))
        }


class Statistics:
    """Adds up the readings of frames.

    Args:
        pids: Processes whose use of GPUs and host is added up, too.
    """

    def __init__(self, pids: Collection[int] = ()) -> None:
        self._pids = pids
        self._sums: dict[tuple[str, str], tuple[float, float, float, int]] = {}
        self._first = self._last = 0.0
        self._frames = 0

    def add(self, frame: Frame) -> None:
        """Add the readings of a frame."""
        self._first = self._first if self._frames else frame.monotonic_seconds
        self._last = frame.monotonic_seconds
        self._frames += 1
        for key, value in _values(frame, self._pids):
            total, minimum, maximum, count = self._sums.get(key, (0.0, value, value, 0))
            self._sums[key] = (total + value, min(minimum, value), max(maximum, value), count + 1)

    def summary(self, tag: str) -> HostSummary:
        """The summary so far."""
        groups: dict[str, dict[str, MetricSummary]] = {}
        for (group, metric), (total, minimum, maximum, count) in self._sums.items():
            groups.setdefault(group, {})[metric] = MetricSummary(total / count, minimum, maximum, count)
        host = groups.pop("host", {})
        processes = {pid: groups.pop(f"pid {pid}") for pid in self._pids if f"pid {pid}" in groups}
        return HostSummary(tag, self._last - self._first, self._frames, groups, host, processes)


def _values(frame: Frame, pids: Collection[int]) -> Iterator[tuple[tuple[str, str], float]]:
    for device in frame.devices:
        if frame.is_fresh(device):
            for metric, value in device.readings.items():
                if not device.is_stale(metric):
                    yield (device.label, metric), value
    for name in ("cpu_percent", "memory_available_bytes"):
        value = getattr(frame.host, name)
        if value is not None:
            yield ("host", name), value
    yield from _process_values(frame, pids)


def _process_values(frame: Frame, pids: Collection[int]) -> Iterator[tuple[tuple[str, str], float]]:
    on_gpus: dict[int, list[Process]] = defaultdict(list)
    for process in (process for gpu in frame.gpus for process in gpu.processes or () if process.pid in pids):
        on_gpus[process.pid].append(process)
    for pid, processes in on_gpus.items():
        for name, combined in _PROCESS_FIELDS.items():
            values = [value for process in processes if (value := getattr(process, name)) is not None]
            if values:
                yield (f"pid {pid}", name), combined(values)
