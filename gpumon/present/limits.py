"""The limit of a metric on a device, and the scale of its chart."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import floor, log10
from typing import Final

from gpumon.core.metrics import METRICS, Unit
from gpumon.core.model import Device
from gpumon.core.text_table import table
from gpumon.core.units import of_text, value_text
from gpumon.present.metric_style import missing_text

LIMIT_METRICS: Final[Mapping[str, str]] = dict(row.split() for row in table("gpumon.present", "limits"))
_BINARY_STEPS: Final = (1.0, 2.0, 4.0, 8.0, 16.0)
_FULL_PERCENT: Final = 100.0
_MAX_TEXTS: Final = 256
"""Number of cached texts; most readings do not change from one frame to the next."""


def limit_of(metric: str, device: Device) -> float | None:
    """The limit of a metric on a device, or None."""
    limit = LIMIT_METRICS.get(metric)
    return None if limit is None else device.get(limit)


def limited_text(metric: str, device: Device) -> str:
    """A reading with its unit, and with its limit if it has one."""
    value = device.get(metric)
    return missing_text(device, metric) if value is None else _limited_text(metric, value, limit_of(metric, device))


@lru_cache(maxsize=_MAX_TEXTS)
def _limited_text(metric: str, value: float, limit: float | None) -> str:
    unit = METRICS[metric].unit
    text = value_text(value, unit)
    return text if limit is None else of_text(text, value_text(limit, unit))


def scale_of(metric: str, device: Device, highest: float) -> float:
    """The scale of a metric's chart: up to its limit, to 100 %, or to a round value above the highest one."""
    unit = METRICS[metric].unit
    limit = limit_of(metric, device)
    if limit is None and unit is Unit.PERCENT:
        limit = _FULL_PERCENT
    if limit is not None and limit > 0 and highest <= limit:
        return limit
    return _round_above(max(highest, limit or 0.0), unit)


def _round_above(value: float, unit: Unit) -> float:
    """The smallest round number that is not below the value."""
    if value <= 0:
        return 1.0
    if unit is Unit.BYTES:
        power: float = 1024 ** floor(log10(max(value, 1.0)) / log10(1024))
        return next((step * power for step in _binary_steps() if step * power >= value), 1024 * power)
    power = 10.0 ** floor(log10(value))
    return next((step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= value), 10 * power)


def _binary_steps() -> Iterable[float]:
    return (step * factor for factor in (1, 16, 256) for step in _BINARY_STEPS[:-1])
