"""Merging the documents of frames into one of a longer time, with the mean, the lowest and the highest of each value.

Documents are those of `gpumon.core.frames` as the collector writes them: decoding every line would cost half of what
the recorder may cost.
"""

from typing import Any, Final

from gpumon.core.json_fields import Json
from gpumon.core.metrics import METRICS, Unit
from gpumon.core.model import HOST_RATES

_AVERAGED: Final = frozenset({Unit.PERCENT, Unit.CELSIUS, Unit.WATTS, Unit.HERTZ, Unit.BYTES, Unit.BYTES_PER_SECOND})
_METRICS: Final = tuple(
    metric.id
    for metric in METRICS.values()
    if metric.unit in _AVERAGED and not metric.id.endswith(("_total_bytes", "_max_hertz"))
)
"""Of counters and states, the newest value counts."""
_HOST: Final = ("cpu_percent", *HOST_RATES)
_LARGE: Final = 1e6
_Sums = dict[str, list[float]]
"""Sum, lowest, highest and number of values, by metric."""


class FrameMerger:
    """Merges consecutive frames.

    Args:
        seconds: The time that a merged frame stands for.
    """

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._bucket: int | None = None
        self._first: Json | None = None
        self._last: Json | None = None
        self._clear()

    def add(self, document: Json) -> Json | None:
        """Add a frame; returns the merged frame of the time before, if another time begins with this one."""
        bucket = int(document["monotonic_seconds"] // self._seconds)
        merged = self.flush() if bucket != self._bucket else None
        self._bucket = bucket
        self._first = self._first or document
        self._last = document
        self._events += document["events"]
        _add(self._host, document["host"], _HOST)
        for device in document["devices"]:
            key = device.get("uuid") or device["index"]
            _add(self._devices.setdefault(key, {}), device, _METRICS)
            if device.get("throttle_reasons"):
                self._reasons.setdefault(key, {}).update(dict.fromkeys(device.get("throttle_reasons")))
        return merged

    def flush(self) -> Json | None:
        """The merged frame up to now, and begin again; None without a frame."""
        first, last = self._first, self._last
        if first is None or last is None:
            return None
        host = {name: _mean(sums) for name, sums in self._host.items() if last["host"].get(name) is not None}
        merged = {
            **last,
            "time_seconds": first["time_seconds"],
            "monotonic_seconds": first["monotonic_seconds"],
            "interval_seconds": float(self._seconds),
            "host": {**last["host"], **host},
            "devices": list(map(self._device, last["devices"])),
            "events": self._events,
        }
        self._clear()
        return merged

    def _device(self, device: Json) -> Json:
        key = device.get("uuid") or device["index"]
        sums = {name: values for name, values in self._devices[key].items() if device.get(name) is not None}
        reasons = device.get("throttle_reasons")
        return {
            **device,
            **{name: _mean(values) for name, values in sums.items()},
            "ranges": {name: values[1:3] for name, values in sums.items() if values[1] != values[2]},
            "throttle_reasons": reasons if reasons is None else list(self._reasons.get(key, ())),
        }

    def _clear(self) -> None:
        self._first = self._last = None
        self._events: list[Any] = []
        self._host: _Sums = {}
        self._devices: dict[object, _Sums] = {}
        self._reasons: dict[object, dict[str, None]] = {}


def _add(sums: _Sums, record: Json, names: tuple[str, ...]) -> None:
    ranges = record.get("ranges", {})
    for name in names:
        value = record.get(name)
        if value is None:
            continue
        low, high = ranges.get(name) or (value, value)
        known = sums.get(name)
        if known is None:
            sums[name] = [value, low, high, 1]
        else:
            known[0] += value
            known[1] = min(known[1], low)
            known[2] = max(known[2], high)
            known[3] += 1


def _mean(values: list[float]) -> float:
    total, low, high, count = values
    if low == high:
        return low
    mean = total / count
    return min(max(low, round(mean) if mean > _LARGE else round(mean, 2)), high)
