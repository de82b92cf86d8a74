"""Alerts: what a rule finds, and the record that people and programs read."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from gpumon.core.metrics import METRICS, Unit
from gpumon.core.model import Device
from gpumon.core.units import value_text


class EvidenceItem(NamedTuple):
    """A value that led to an alert.

    Attributes:
        label: What the value is.
        value: The value, in ``unit``.
        unit: Its unit.
    """

    label: str
    value: float
    unit: Unit

    @property
    def text(self) -> str:
        """The value with its unit."""
        return value_text(self.value, self.unit)


Evidence = tuple[EvidenceItem, ...]
AlertKey = tuple[str | None, str, str]
"""Device key, alert id, and subject: what identifies an alert among all that stand at one time."""


class Severity(str, Enum):
    """How serious an alert is."""

    INFO = "info"
    """Normal, and good to know."""
    WARNING = "warning"
    """The GPU works, but slower or less reliably than it could."""
    CRITICAL = "critical"
    """The GPU, the driver, or the results cannot be relied on."""

    @property
    def rank(self) -> int:
        """Position among all severities, 0 for the worst."""
        return _RANKS[self]


_RANKS: Final = {severity: rank for rank, severity in enumerate(reversed(Severity))}


class AlertFinding(NamedTuple):
    """What a rule finds at one moment.

    Attributes:
        id: Stable public name of the alert.
        severity: How serious it is.
        detail: What is wrong, in one sentence.
        action: What to do.
        evidence: The values that led to it.
        subject: The part of the device it concerns, where there may be several, such as a process.
        after_seconds: How long the finding must hold without a break before it becomes an alert.
        age_seconds: How long ago the condition began, where the device's own records say so.
    """

    id: str
    severity: Severity
    detail: str
    action: str = ""
    evidence: Evidence = ()
    subject: str = ""
    after_seconds: float = 0.0
    age_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing that is wrong, or that is good to know.

    Attributes:
        id: Stable public name.
        severity: How serious it is.
        detail: What is wrong, in one sentence.
        action: What to do.
        since_seconds: Unix time at which the condition began.
        device_key: The device it concerns, or None for the host.
        device_index: NVML's index of that device.
        evidence: The values that led to it.
        subject: The part of the device it concerns, where there may be several, such as a process.
        is_acknowledged: Whether the user has seen it and wants to hear no more of it while it stands.
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
    is_acknowledged: bool = False

    @property
    def key(self) -> AlertKey:
        """What identifies it among all alerts that stand at one time."""
        return self.device_key, self.id, self.subject

    @property
    def needs_attention(self) -> bool:
        """Whether it is counted in the header: above info, and not acknowledged."""
        return self.severity is not Severity.INFO and not self.is_acknowledged

    @property
    def title(self) -> str:
        """The alert in a few words."""
        return f"{self.id.replace('_', ' ')} {self.subject}".rstrip()


def make_alert(finding: AlertFinding, device: Device | None, since_seconds: float) -> Alert:
    """The alert for a finding on a device, or on the host if ``device`` is None."""
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


def evidence_of(device: Device, *metric_ids: str) -> Evidence:
    """The given metrics of a device as evidence, without those that are missing."""
    readings = device.readings
    known = [(METRICS[metric_id], readings[metric_id]) for metric_id in metric_ids if metric_id in readings]
    return tuple([EvidenceItem(metric.label, value, metric.unit) for metric, value in known])


def ranges_text(numbers: Sequence[int]) -> str:
    """Distinct numbers as text, consecutive ones joined: ``0-3, 6``."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
