"""Health rules: what in a frame deserves a person's attention.

A GPU at its power limit is not among them: that is how a healthy one behaves under full load.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from gpumon.core.model import Device, DeviceState, Frame
from gpumon.core.units import age_text, bytes_text

UNATTRIBUTED_FLOOR_BYTES: Final = 64 << 20
"""Unowned memory below this is the driver's bookkeeping beside every process."""

_UNATTRIBUTED_SHARE: Final = 0.01
"""Share of a device's memory from which on unowned memory is an alert; below, its row says it."""

_XID_ACTION: Final = "Look for an Xid in the kernel log (dmesg | grep -i xid)."
_LOST_ACTION: Final = "Look for an Xid in the kernel log (dmesg | grep -i xid), then reset the GPU or reboot."
_HARDWARE_SLOWDOWNS: Final = {
    "hw_thermal_slowdown": "too hot",
    "hw_power_brake_slowdown": "told by the power supply to brake",
    "hw_slowdown": "slowed down by its hardware",
    "sw_thermal_slowdown": "slowed down by the driver because it or its memory is too hot",
}
_PLURALS: Final = {
    "gpu_lost": "are lost",
    "gpu_unresponsive": "do not answer",
    "gpu_excluded": "are excluded",
    "memory_unattributed": "have memory in use that no visible process owns",
    "temperature_high": "are near the temperature at which they slow down",
    **{reason: f"run slower than they could: {words}" for reason, words in _HARDWARE_SLOWDOWNS.items()},
}
"""What is said of several devices with the same alert."""


class Severity(str, Enum):
    """How much an alert matters."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing that is wrong.

    Attributes:
        id: Stable public name.
        severity: How much it matters.
        detail: What is wrong, in one sentence.
        action: What to do.
        since_seconds: Unix time at which it was first seen.
        device_key: The device it concerns, or None for the machine.
        device_index: NVML's index of that device.
    """

    id: str
    severity: Severity
    detail: str
    action: str = ""
    since_seconds: float = 0.0
    device_key: str | None = None
    device_index: int | None = None


def check(frame: Frame) -> list[Alert]:
    """Everything that is wrong in a frame, worst first; ``since_seconds`` is the frame's own time."""
    found = [
        Alert(subject, Severity.CRITICAL, problem.reason, problem.remedy)
        for subject, problem in frame.problems.items()
        if not hasattr(frame, subject)  # under the name of a field it only says why that is missing
    ]
    if "driver" not in frame.problems:
        found += [alert for device in frame.devices for alert in _check_device(device)]
    order = list(reversed(Severity))
    return [_at(alert, frame.time_seconds) for alert in sorted(found, key=lambda alert: order.index(alert.severity))]


class HealthHistory:
    """Remembers since when each alert has stood."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str | None], float] = {}

    def check(self, frame: Frame) -> list[Alert]:
        """As `check`, with ``since_seconds`` of the first frame in a row that showed the alert."""
        alerts = check(frame)
        self._since = {
            (alert.id, alert.device_key): self._since.get((alert.id, alert.device_key), alert.since_seconds)
            for alert in alerts
        }
        return [_at(alert, self._since[alert.id, alert.device_key]) for alert in alerts]


def merged_alerts(alerts: Sequence[Alert]) -> list[Alert]:
    """The alerts with alike ones of several devices as one; it stands since the first of them does."""
    found: list[Alert] = []
    done: set[str] = set()
    for alert in alerts:
        alike = [each for each in alerts if each.id == alert.id and each.device_index is not None]
        if len(alike) < 2 or alert.id not in _PLURALS:
            found.append(alert)
        elif alert.id not in done:
            done.add(alert.id)
            indices = _ranges([each.device_index for each in alike if each.device_index is not None])
            since = min(each.since_seconds for each in alike)
            found.append(replace(alert, detail=f"GPUs {indices} {_PLURALS[alert.id]}.", since_seconds=since))
    return found


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers as text, neighbours joined: ``0-3, 6``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def is_unattributed(device: Device) -> bool:
    """Whether a device has memory in use that no visible process owns, beyond bookkeeping."""
    held = device.get("memory_unattributed_bytes")
    return held is not None and held >= UNATTRIBUTED_FLOOR_BYTES


def _check_device(device: Device) -> Iterator[Alert]:
    if device.state is not DeviceState.OK:
        yield _not_answering(device)
        return
    yield from _check_heat(device)
    if is_much_unattributed(device):
        held = bytes_text(device.get("memory_unattributed_bytes"))
        yield Alert(
            "memory_unattributed",
            Severity.WARNING,
            f"GPU {device.index}: {held} of memory belong to no visible process.",
            "Look for its holder: sudo fuser -v /dev/nvidia*; it may run in a container or be about to end.",
            device_key=device.key,
            device_index=device.index,
        )


def is_much_unattributed(device: Device) -> bool:
    """Whether it is more than a share that a process about to end leaves for a moment."""
    held = device.get("memory_unattributed_bytes") or 0
    total = device.get("memory_total_bytes") or 0
    return is_unattributed(device) and held >= _UNATTRIBUTED_SHARE * total


def _not_answering(device: Device) -> Alert:
    """The alert of a device that cannot be read."""
    subject = f"GPU {device.index}"
    problem = device.problems.get("state")
    if device.state is DeviceState.UNRESPONSIVE:
        age = "never read" if device.age_seconds is None else f"its values are {age_text(device.age_seconds)} old"
        return Alert(
            "gpu_unresponsive",
            Severity.CRITICAL,
            f"{subject} does not answer; {age}.",
            _XID_ACTION if problem is None else problem.remedy,
            device_key=device.key,
            device_index=device.index,
        )
    reason = "it cannot be read." if problem is None else problem.reason
    if device.state is DeviceState.EXCLUDED:
        return Alert(
            "gpu_excluded",
            Severity.WARNING,
            f"{subject} is excluded: {reason}",
            device_key=device.key,
            device_index=device.index,
        )
    return Alert(
        "gpu_lost",
        Severity.CRITICAL,
        f"{subject} is lost: {reason}",
        _LOST_ACTION,
        device_key=device.key,
        device_index=device.index,
    )


def _check_heat(device: Device) -> Iterator[Alert]:
    subject = f"GPU {device.index}"
    reasons = device.throttle_reasons or ()
    for reason, words in _HARDWARE_SLOWDOWNS.items():
        if reason in reasons:
            yield Alert(
                reason,
                Severity.WARNING,
                f"{subject} runs slower than it could: {words}.",
                "Check cooling, power supply and the power limit of the machine.",
                device_key=device.key,
                device_index=device.index,
            )
            return
    temperature, slowdown = device.get("temperature_celsius"), device.get("temperature_slowdown_celsius")
    if temperature is not None and slowdown is not None and temperature >= slowdown - 3:
        yield Alert(
            "temperature_high",
            Severity.WARNING,
            f"{subject} has {temperature:.0f} °C and slows down at {slowdown:.0f} °C.",
            "Check fans, air flow and room temperature.",
            device_key=device.key,
            device_index=device.index,
        )


def _at(alert: Alert, since_seconds: float) -> Alert:
    return replace(alert, since_seconds=since_seconds)
