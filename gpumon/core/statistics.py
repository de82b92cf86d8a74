"""Mean, minimum and maximum of readings over the frames of a time range."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpumon.core.model import Frame

_HOST_FIELDS = ("cpu_percent", "memory_available_bytes")


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
class Summary:
    """What a host measured over a time range, such as an epoch.

    Attributes:
        tag: The name that the caller gave.
        seconds: Time between the first and the last frame.
        frames: Number of frames.
        devices: By the label of the device, such as ``0`` or ``1:0``, then by metric.
        host: By field of the host, such as ``cpu_percent``.
    """

    tag: str
    seconds: float
    frames: int
    devices: Mapping[str, Mapping[str, MetricSummary]]
    host: Mapping[str, MetricSummary]

    def flat(self) -> dict[str, float]:
        """One number for each name, for loggers: ``epoch/gpu 0/power_watts/mean``."""
        groups = {**{f"gpu {label}": metrics for label, metrics in self.devices.items()}, "host": self.host}
        return {
            "/".join(filter(None, (self.tag, group, metric, kind))): value
            for group, metrics in groups.items()
            for metric, summary in metrics.items()
            for kind, value in (("mean", summary.mean), ("min", summary.minimum), ("max", summary.maximum))
        }


class Statistics:
    """Adds up the readings of frames."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], tuple[float, float, float, int]] = {}
        self._first = self._last = 0.0
        self._frames = 0

    def copy(self) -> "Statistics":
        """The same sums, which change independently."""
        other = Statistics()
        other._sums, other._frames = self._sums.copy(), self._frames
        other._first, other._last = self._first, self._last
        return other

    def add(self, frame: Frame) -> None:
        """Add the readings of a frame."""
        self._first = self._first if self._frames else frame.monotonic_seconds
        self._last = frame.monotonic_seconds
        self._frames += 1
        for key, value in _values(frame):
            total, minimum, maximum, count = self._sums.get(key, (0.0, value, value, 0))
            self._sums[key] = (total + value, min(minimum, value), max(maximum, value), count + 1)

    def summary(self, tag: str) -> Summary:
        """The summary so far."""
        groups: dict[str, dict[str, MetricSummary]] = {}
        for (group, metric), (total, minimum, maximum, count) in self._sums.items():
            groups.setdefault(group, {})[metric] = MetricSummary(total / count, minimum, maximum, count)
        host = groups.pop("host", {})
        return Summary(tag, self._last - self._first, self._frames, groups, host)


def _values(frame: Frame) -> Iterator[tuple[tuple[str, str], float]]:
    for device in frame.devices:
        if frame.is_fresh(device):
            for metric, value in device.readings.items():
                if not device.is_stale(metric):
                    yield (device.label, metric), value
    for name in _HOST_FIELDS:
        value = getattr(frame.host, name)
        if value is not None:
            yield ("host", name), value
