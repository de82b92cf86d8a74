"""The catalogue of per-device metrics: identity, unit, bounds and source of each.

A metric's ``id`` is its name everywhere: in records, in recordings and in ``--json``. The id ends in the unit, as
Prometheus names do. A value outside the bounds of its metric is not a reading: drivers do return 4294967295 %.

To add a metric, add a row to `metrics.txt` and a reader to the collector.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gpumon.core.text_table import table


class Unit(Enum):
    """The unit of a metric's values."""

    BYTES = "B"
    BYTES_PER_SECOND = "B/s"
    PERCENT = "%"
    CELSIUS = "°C"
    WATTS = "W"
    JOULES = "J"
    HERTZ = "Hz"
    BITS = "bit"
    PERFORMANCE_STATE = "P"
    COUNT = "#"
    """A number of events or of items; written without a unit."""
    NONE = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number that a device can report.

    Attributes:
        id: Public name, with the unit at its end.
        label: Short human-readable name.
        unit: Unit of the value.
        minimum: Lowest valid value.
        maximum: Highest valid value.
        source: The NVML call that returns the value.
        help: What the number means, in one sentence.
    """

    id: str
    label: str
    unit: Unit
    minimum: float
    maximum: float
    source: str
    help: str

    def admits(self, value: float) -> bool:
        """Whether ``value`` is within the bounds."""
        return self.minimum <= value <= self.maximum


def _metric(row: str) -> Metric:
    metric_id, label, unit, minimum, maximum, source, meaning = row.split(" | ")
    return Metric(metric_id, label, Unit[unit.upper()], float(minimum), float(maximum), source, meaning)


METRICS: Final[dict[str, Metric]] = {metric.id: metric for metric in map(_metric, table("gpumon.core", "metrics"))}
ON_DEMAND_METRICS: Final = (*METRICS.values(),)[[*METRICS].index("sm_activity_percent") :]
"""Read only while a screen shows the device, since reading these holds the driver's lock; SM activity is also sampled
now and then on a busy device."""


def similar_names(name: str, names: Collection[str]) -> list[str]:
    """The names that are closest to a misspelled or shortened one: ``gpu_util`` is in `utilization_gpu_percent`."""
    from difflib import get_close_matches  # late: few programs misspell a metric

    def shared(other: str) -> int:
        parts = other.split("_")
        return sum(any(part.startswith(word) for part in parts) for word in words)

    words = list(filter(None, name.lower().split("_")))
    best = max(map(shared, names), default=0)
    by_word = [other for other in names if best and shared(other) == best]
    return (
        get_close_matches(name, names, n=3, cutoff=0.7)
        or by_word[:3]
        or get_close_matches(name, names, n=3, cutoff=0.5)
    )


def unknown_metric_text(name: str) -> str:
    """That there is no such metric, with the closest names."""
    matches = similar_names(name, METRICS)
    return f"There is no metric {name!r}." + (f" Did you mean {', '.join(matches)}?" if matches else "")
