"""What a rule is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from gpumon.core.model import Device
from gpumon.diagnosis.health.alert import Finding
from gpumon.diagnosis.health.past import Past
from gpumon.diagnosis.health.thresholds import Thresholds

CLEAR_SECONDS: Final = 15.0
"""What comes and goes in less time than that is one alert, not many."""

RuleCheck = Callable[[Device, Past, Thresholds], Iterator[Finding]]


def is_busy(device: Device, limits: Thresholds) -> bool:
    """Whether a device is at work."""
    utilization = device.get("utilization_gpu_percent")
    return utilization is not None and utilization >= limits.busy_percent


def always(_: Device, __: Thresholds) -> bool:
    """For rules that concern every device."""
    return True


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that is looked for on every device.

    Attributes:
        label: What that is, in a few words.
        check: Finds it; depends on nothing but what it is given.
        needs: Readings, or fields of a device, without which it cannot tell.
        clear_seconds: An alert of it ends when it has not been found for so long.
        concerns: Whether it is a question at all for a device as it is now.
    """

    label: str
    check: RuleCheck
    needs: tuple[str, ...] = ()
    clear_seconds: float = CLEAR_SECONDS
    concerns: Callable[[Device, Thresholds], bool] = always

    def can_tell(self, device: Device, limits: Thresholds, *, has_readings: bool) -> bool:
        """Whether it can be checked on a device, whose readings are of this moment or are not."""
        return not self.needs or (has_readings and self.missing(device, limits) is None)

    def missing(self, device: Device, limits: Thresholds) -> str | None:
        """The first of its needs that a device lacks which it concerns."""
        if self.concerns(device, limits):
            for name in self.needs:
                if name not in device.readings and getattr(device, name, None) is None:
                    return name
        return None
