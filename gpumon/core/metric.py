"""What a metric is: identity, unit, bounds, thresholds and source."""

from dataclasses import dataclass
from enum import Enum


class Unit(Enum):
    """What one step of a value means."""

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
    """How often something happened, or how many there are; written without a unit."""
    NONE = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number that a device can report.

    Attributes:
        id: Public name, unit at its end.
        label: Short human name.
        unit: Unit of the value.
        minimum: Lowest value that can be true.
        maximum: Highest value that can be true.
        source: The NVML call it comes from.
        help: What the number means, in one sentence.
        warning: From this value on it deserves attention, or None.
        critical: From this value on something is wrong, or None.
    """

    id: str
    label: str
    unit: Unit
    minimum: float
    maximum: float
    source: str
    help: str
    warning: float | None = None
    critical: float | None = None

    def admits(self, value: float) -> bool:
        """Whether ``value`` can be a true reading."""
        return self.minimum <= value <= self.maximum
