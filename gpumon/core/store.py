"""The one place where frames become state: the latest frame and the history of every device.

It is written by `Store.apply` alone and read by everything that draws.
"""

from typing import Final

from gpumon.core.history import Ring
from gpumon.core.model import Device, Frame

HISTORY_METRICS: Final = ("utilization_gpu_percent", "memory_used_bytes")
HISTORY_BUCKETS: Final = 180
BUCKET_SECONDS: Final = 4.0
_FORGET_SECONDS: Final = 600.0


class DeviceHistory:
    """Rings of one device, one for each of `HISTORY_METRICS`."""

    __slots__ = ("last_seen", "rings")

    def __init__(self, bucket_seconds: float) -> None:
        self.rings = {metric: Ring(HISTORY_BUCKETS, bucket_seconds) for metric in HISTORY_METRICS}
        self.last_seen = 0.0

    def apply(self, device: Device, seconds: float, *, fresh: bool) -> None:
        """Adds the device's readings; anything but a fresh reading is a gap."""
        self.last_seen = seconds
        for metric, ring in self.rings.items():
            ring.add(seconds, device.get(metric) if fresh else None)


class Store:
    """Latest frame and per-device history.

    Args:
        bucket_seconds: Width of a history bucket; drawn histories move on at this pace, whatever the sample rate.
    """

    def __init__(self, bucket_seconds: float = BUCKET_SECONDS) -> None:
        self.frame: Frame | None = None
        self.bucket_seconds = bucket_seconds
        self._histories: dict[str, DeviceHistory] = {}

    def apply(self, frame: Frame) -> None:
        """Takes a frame in. One from an earlier moment (a seek, another machine) starts the history anew."""
        if self.frame is not None and frame.monotonic_seconds < self.frame.monotonic_seconds - self.bucket_seconds:
            self._histories.clear()
        self.frame = frame
        seconds = frame.monotonic_seconds
        for device in frame.devices:
            history = self._histories.get(device.key)
            if history is None:
                history = self._histories[device.key] = DeviceHistory(self.bucket_seconds)
            history.apply(device, seconds, fresh=frame.is_fresh(device))
        if len(self._histories) > len(frame.devices):
            self._forget(seconds)

    def clear(self) -> None:
        """Forgets everything."""
        self.frame = None
        self._histories.clear()

    def history(self, key: str, metric: str, buckets: int) -> list[float | None]:
        """The newest ``buckets`` of a device's metric, oldest first; all None for an unknown device."""
        history = self._histories.get(key)
        return [None] * buckets if history is None else history.rings[metric].tail(buckets)

    def _forget(self, seconds: float) -> None:
        gone = [key for key, held in self._histories.items() if seconds - held.last_seen > _FORGET_SECONDS]
        for key in gone:
            del self._histories[key]
