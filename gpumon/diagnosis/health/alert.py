"""What a rule finds, and the alert that comes of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

from gpumon.core.metrics import METRICS, Unit
from gpumon.core.model import Device
from gpumon.core.units import value_text


class Figure(NamedTuple):
    """A number by which something was found: what it is, and its value."""

    label: str
    value: float
    unit: Unit

    @property
    def text(self) -> str:
        """The value with its unit."""
        return value_text(self.value, self.unit)


Evidence = tuple[Figure, ...]

_PLURALS: Final = {
    "gpu_lost": "are lost",
    "gpu_unresponsive": "do not answer",
    "gpu_excluded": "are excluded",
    "memory_unattributed": "have memory in use that no visible process owns",
    "idle_memory": "are idle and hold memory",
    "temperature_high": "are near the temperature at which they slow down",
    "temperature_memory_high": "have memory that is hot",
    "hw_thermal_slowdown": "run slower than they could: too hot",
    "hw_power_brake_slowdown": "run slower than they could: told by the power supply to brake",
    "hw_slowdown": "run slower than they could: slowed down by their hardware",
    "sw_thermal_slowdown": "run slower than they could: slowed down by the driver because of heat",
    "power_cap": "run at their power limit, as healthy ones do under full load",
    "clocks_set": "run at clocks that somebody has set",
    "clock_low": "work at a low clock, and no reason is told",
    "pcie_degraded": "work over a slower PCIe link than they could have",
    "pcie_replays": "have to send PCIe packets again and again",
    "nvlink_down": "have NVLink links that are down",
    "ecc_uncorrected": "have memory errors that could not be corrected",
    "ecc_uncorrected_before": "had memory errors that could not be corrected, in an earlier time",
    "ecc_corrected_rising": "correct memory errors again and again",
    "remap_pending": "wait for a reset that replaces rows of their memory",
    "remap_failed": "could not replace rows of their memory",
    "busy_without_sm": "say that they are busy, but their multiprocessors have no work",
}
"""What is said of several devices with the same alert."""


class Severity(str, Enum):
    """How much an alert matters."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Its place among all, the worst first."""
        return _RANKS[self]


_RANKS: Final = {severity: place for place, severity in enumerate(reversed(Severity))}


class Finding(NamedTuple):
    """What a rule sees at one moment.

    Attributes:
        id: Stable public name.
        severity: How much it matters.
        detail: What is wrong, in one sentence.
        action: What to do.
        evidence: By which figures it was found.
        subject: What of the device it concerns, where there may be several, such as a process.
        after_seconds: It becomes an alert when it has been seen for so long without a break.
    """

    id: str
    severity: Severity
    detail: str
    action: str = ""
    evidence: Evidence = ()
    subject: str = ""
    after_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing that is wrong, or that is good to know.

    Attributes:
        id: Stable public name.
        severity: How much it matters.
        detail: What is wrong, in one sentence.
        action: What to do.
        since_seconds: Unix time at which it was first seen.
        device_key: The device it concerns, or None for the machine.
        device_index: NVML's index of that device.
        evidence: By which figures it was found.
        subject: What of the device it concerns, where there may be several, such as a process.
    """

    id: str
    severity: Severity
    detail: str
    action: str = ""
    since_seconds: float = 0.0
    device_key: str | None = None
    device_index: int | None = None
    evidence: Evidence = ()
    subject: str = ""

    @property
    def key(self) -> tuple[str | None, str, str]:
        """What identifies it among all that stand at one time."""
        return self.device_key, self.id, self.subject

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        return f"{self.id.replace('_', ' ')} {self.subject}".rstrip()


def alert_of(finding: Finding, device: Device | None, since_seconds: float) -> Alert:
    """The alert of what a rule has found on a device, or on the machine."""
    return Alert(
        finding.id,
        finding.severity,
        finding.detail,
        finding.action,
        since_seconds,
        None if device is None else device.key,
        None if device is None else device.index,
        finding.evidence,
        finding.subject,
    )


def figures(device: Device, *metric_ids: str) -> Evidence:
    """Those readings of a device that are there, as evidence."""
    readings = device.readings
    known = [(METRICS[metric_id], readings[metric_id]) for metric_id in metric_ids if metric_id in readings]
    return tuple([Figure(metric.label, value, metric.unit) for metric, value in known])


def merged_alerts(alerts: Sequence[Alert]) -> list[Alert]:
    """The alerts with alike ones of several devices as one; it stands since the first of them does."""
    found: list[Alert] = []
    alike: dict[str, list[Alert]] = {}
    for alert in alerts:
        if alert.device_index is not None and alert.id in _PLURALS:
            alike.setdefault(alert.id, []).append(alert)
    for alert in alerts:
        same = alike.get(alert.id, [])
        if len(same) < 2:
            found.append(alert)
        elif alert is same[0]:
            found.append(_joined(same))
    return found


def _joined(alerts: Sequence[Alert]) -> Alert:
    """One alert, of the worst severity, for alerts of one kind on several devices."""
    indices = ranges_text([alert.device_index for alert in alerts if alert.device_index is not None])
    return replace(
        alerts[0],
        severity=min((alert.severity for alert in alerts), key=lambda severity: severity.rank),
        detail=f"GPUs {indices} {_PLURALS[alerts[0].id]}.",
        since_seconds=min(alert.since_seconds for alert in alerts),
    )


def ranges_text(numbers: Sequence[int]) -> str:
    """Numbers as text, neighbours joined: ``0-3, 6``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
