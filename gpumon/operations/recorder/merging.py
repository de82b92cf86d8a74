"""Merging the documents of frames into one of a longer time, with the mean, the lowest and the highest of each value.

Documents are those of `gpumon.core.frames` as the collector writes them: decoding every line would cost half of what
the recorder may cost.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.core.groups import grouped
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
_LARGE: Final = 1e6


class _Span(NamedTuple):
    """The values of a metric over some time."""

    mean: float
    low: float
    high: float


class FrameMerger:
    """Merges consecutive frames.

    Args:
        seconds: The time that a merged frame stands for.
    """

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._bucket: int | None = None
        self._frames: list[Json] = []

    def add(self, document: Json) -> Json | None:
        """Add a frame; returns the merged frame of the time before, if another time begins with this one."""
        bucket = int(document["monotonic_seconds"] // self._seconds)
        merged = self.flush() if bucket != self._bucket else None
        self._bucket = bucket
        self._frames.append(document)
        return merged

    def flush(self) -> Json | None:
        """The merged frame up to now, and begin again; None without a frame."""
        frames, self._frames = self._frames, []
        if not frames:
            return None
        first, last = frames[0], frames[-1]
        devices = grouped((_key(device), device) for frame in frames for device in frame["devices"])
        host = _spans([frame["host"] for frame in frames], ("cpu_percent", *HOST_RATES))
        return {
            **last,
            "time_seconds": first["time_seconds"],
            "monotonic_seconds": first["monotonic_seconds"],
            "interval_seconds": float(self._seconds),
            "host": {**last["host"], **{name: span.mean for name, span in host.items()}},
            "devices": [_device(devices[_key(device)]) for device in last["devices"]],
            "events": [event for frame in frames for event in frame["events"]],
        }


def _key(device: Json) -> object:
    return device.get("uuid") or device["index"]


def _device(records: Sequence[Json]) -> Json:
    """A device over some time."""
    spans = _spans(records, _METRICS)
    reasons = [reason for record in records for reason in record.get("throttle_reasons") or ()]
    is_known = records[-1].get("throttle_reasons") is not None
    return {
        **records[-1],
        **{name: span.mean for name, span in spans.items()},
        "ranges": {name: span[1:] for name, span in spans.items() if span.low != span.high},
        "throttle_reasons": list(dict.fromkeys(reasons)) if is_known else None,
    }


def _spans(records: Sequence[Json], names: Sequence[str]) -> dict[str, _Span]:
    """The spans of the values that the last record has; a record may be a merged one, with ranges."""
    last, ranges = records[-1], [record["ranges"] for record in records if record.get("ranges")]
    spans = {}
    for name in names:
        if last.get(name) is None:
            continue
        values = [value for record in records if (value := record.get(name)) is not None]
        low, high = min(values), max(values)
        if ranges:
            known = [span[name] for span in ranges if name in span]
            low, high = min([low, *(span[0] for span in known)]), max([high, *(span[1] for span in known)])
        mean = sum(values) / len(values)
        spans[name] = _Span(min(max(low, round(mean) if mean > _LARGE else round(mean, 2)), high), low, high)
    return spans
