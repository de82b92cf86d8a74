"""The metrics of workloads: their names, units, which direction is better, and how a value is written.

A workload declares them, and its description carries the declarations to gpumon. Tables, charts, JSON and comparisons
use these records.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar

from gpumon.core.text import safe_text
from gpumon.core.units import MISSING, bytes_text

_MAX_NAME: Final = 64
_EnumT = TypeVar("_EnumT", bound=Enum)


class Better(str, Enum):
    """Which direction of a metric is better; public names."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = ""


class MetricFormat(str, Enum):
    """How a value is written; public names."""

    NUMBER = "number"
    """Four significant digits."""
    COUNT = "count"
    """An integer."""
    BYTES = "bytes"
    """As KiB, MiB and so on."""


@dataclass(frozen=True, slots=True)
class WorkloadMetric:
    """A metric of a workload.

    Attributes:
        name: Its name, without the unit; a declaration may have ``*`` in it.
        unit: Its unit, or empty.
        better: Which direction is better.
        format: How a value is written.
    """

    name: str
    unit: str = ""
    better: Better = Better.NEITHER
    format: MetricFormat = MetricFormat.NUMBER

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "WorkloadMetric":
        """Parse a declaration, or the metric of a measurement.

        Raises:
            KeyError, TypeError: It is invalid.
        """
        name, unit = _text(raw["name"]), _text(raw["unit"])
        default = MetricFormat.BYTES if unit in {"B", "byte", "bytes"} else MetricFormat.NUMBER
        return cls(
            safe_text(name, _MAX_NAME),
            safe_text(unit, _MAX_NAME),
            _member(raw.get("better"), Better.NEITHER),
            _member(raw.get("format"), default),
        )

    @property
    def label(self) -> str:
        """The name for people."""
        return label_text(self.name)

    @property
    def heading(self) -> str:
        """The unit that a heading shows for all values; empty if each value has its own, such as KiB."""
        return "" if self.format is MetricFormat.BYTES else self.unit

    def text(self, value: float | None, *, has_unit: bool = True) -> str:
        """A value as text.

        Args:
            value: The value, or None.
            has_unit: Whether the unit follows; a heading may have it.
        """
        if value is None:
            return MISSING
        if self.format is MetricFormat.BYTES:
            return bytes_text(value)
        number = f"{value:.0f}" if self.format is MetricFormat.COUNT else significant_text(value)
        return f"{number} {self.unit}".rstrip() if has_unit else number

    def is_better(self, before: float, after: float) -> bool | None:
        """Whether a value is better than an earlier one; None if they are equal, or no direction is better."""
        if before == after or self.better is Better.NEITHER:
            return None
        return (after > before) is (self.better is Better.HIGHER)


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measured value in the result of a workload.

    Attributes:
        metric: What was measured.
        value: The value.
        repetitions: Number of measurements behind it.
        limit: The limit that it is compared with, in the same unit, or None.
        limit_source: Where the limit comes from.
        case: What it was measured for; empty if the workload has one case.
        position: The case as a number, if the cases are points of a sweep.
    """

    metric: WorkloadMetric
    value: float
    repetitions: int
    limit: float | None = None
    limit_source: str = ""
    case: str = ""
    position: float | None = None

    @classmethod
    def of(cls, raw: Any, declared: Iterable[WorkloadMetric] = ()) -> "Measurement | None":  # noqa: ANN401 - JSON
        """Parse the public format; None if it is invalid.

        Args:
            raw: A JSON value.
            declared: What the workload declares. A saved result has what was declared when it was saved.
        """
        try:
            metric, repetitions = WorkloadMetric.of(raw), raw["repetitions"]
            if type(repetitions) is not int:
                return None
            return cls(
                declared_metric(metric, declared),
                _number(raw["value"]),
                int(_number(repetitions)),
                None if raw.get("limit") is None else _number(raw["limit"]),
                _text(raw.get("limit_source", "")),
                _text(raw.get("case", "")),
                None if raw.get("position") is None else _number(raw["position"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            return None

    @property
    def key(self) -> tuple[str, str]:
        """Name and case, which identify the measurement in a result."""
        return self.metric.name, self.case

    @property
    def text(self) -> str:
        """The value with its unit."""
        return self.metric.text(self.value)

    @property
    def share_of_limit(self) -> float | None:
        """The value as a share of its limit; None without a limit."""
        return self.value / self.limit if self.limit else None

    def document(self) -> dict[str, Any]:
        """The measurement in the public format."""
        fields = asdict(self)
        return {**fields.pop("metric"), **fields}


def declared_metric(metric: WorkloadMetric, declared: Iterable[WorkloadMetric]) -> WorkloadMetric:
    """A metric with what the first fitting declaration says about it; its own unit may differ from the declared one."""
    declaration = next((item for item in declared if fnmatchcase(metric.name, item.name)), None)
    return metric if declaration is None else replace(declaration, name=metric.name, unit=metric.unit)


def label_text(name: str) -> str:
    """A label for a name such as ``throughput_first_second``."""
    return name.replace("_", " ")


def significant_text(value: float) -> str:
    """A number with four significant digits."""
    if value == 0:
        return "0"
    if abs(value) >= 1e7 or abs(value) < 1e-3:
        return f"{value:.3g}"
    if abs(value) >= 999.95:
        return f"{value:.0f}"
    return f"{value:.4g}"


def _text(raw: object) -> str:
    if not isinstance(raw, str):
        raise TypeError("expected text")
    return raw


def _number(raw: object) -> float:
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not math.isfinite(raw):
        raise TypeError("expected a finite number")
    return raw


def _member(raw: object, default: _EnumT) -> _EnumT:
    """The member of an enumeration; the default for what is none, such as one of a later version."""
    return next((member for member in type(default) if member.value == raw), default)
