"""Rules for temperature, and for what lowers the clocks."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.device_use import is_busy
from gpumon.core.model import Device
from gpumon.core.throttle_reasons import (
    CLOCK_SETTINGS,
    POWER_CAP,
    THROTTLE_REASONS,
    explain_low_clock,
    main_fault,
)
from gpumon.core.units import megahertz_text
from gpumon.health.alerts.model import AlertFinding, Severity, evidence_of
from gpumon.health.alerts.rule import BUSY_MARGIN, AlertRule, Thresholds
from gpumon.health.alerts.tracking import DeviceTracker

_EVIDENCE: Final = (
    "temperature_celsius", "temperature_slowdown_celsius", "power_watts", "power_limit_watts", "clock_sm_hertz",
    "clock_sm_max_hertz",
)  # fmt: skip
COOLING: Final = THROTTLE_REASONS["hw_thermal_slowdown"].fix


def is_near_slowdown(device: Device, thresholds: Thresholds) -> bool:
    """Whether a GPU is so hot that it is about to lower its clocks. Decides the alert and the mark on the overview."""
    temperature, slowdown = device.get("temperature_celsius"), device.get("temperature_slowdown_celsius")
    if temperature is None or slowdown is None:
        return False
    return temperature >= slowdown - thresholds.temperature_margin_celsius


def is_clock_low(device: Device, thresholds: Thresholds) -> bool:
    """Whether a busy GPU runs at a low SM clock and the driver reports no reason for it."""
    clock, max_clock = device.get("clock_sm_hertz"), device.get("clock_sm_max_hertz")
    reasons = device.throttle_reasons
    if clock is None or not max_clock or reasons is None or not is_busy(device, thresholds.busy_percent):
        return False
    return clock < max_clock * thresholds.clock_low_percent / 100 and not explain_low_clock(reasons)


def clock_text(device: Device) -> str:
    """The SM clock next to its maximum: ``1485 of 1980 MHz``."""
    max_clock = device.get("clock_sm_max_hertz")
    maximum = "" if max_clock is None else f" of {megahertz_text(max_clock)}"
    return f"{megahertz_text(device.get('clock_sm_hertz'))}{maximum} MHz"


def _fault_throttling(device: Device, _: DeviceTracker, __: Thresholds) -> Iterator[AlertFinding]:
    """Clocks that heat or the power supply lowers."""
    reason = main_fault(device.throttle_reasons or ())
    if reason is not None:
        detail = f"GPU {device.index} is throttled by {reason.fault}."
        yield AlertFinding(reason.id, Severity.WARNING, detail, reason.fix, evidence_of(device, *_EVIDENCE))


def _power_cap(device: Device, _: DeviceTracker, __: Thresholds) -> Iterator[AlertFinding]:
    """Clocks that the power limit lowers, which is normal under full load."""
    if POWER_CAP not in (device.throttle_reasons or ()):
        return
    limit = device.get("power_limit_watts")
    limit_text = "" if limit is None else f" of {limit:.0f} W"
    detail = f"GPU {device.index} runs at its power limit{limit_text}, which is normal under full load."
    action = "Nothing to fix. A limit below the board's default reduces performance to save power."
    yield AlertFinding("power_cap", Severity.INFO, detail, action, evidence_of(device, *_EVIDENCE))


def _clocks_set(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Clocks that a user has set, while the GPU is busy."""
    if CLOCK_SETTINGS.isdisjoint(device.throttle_reasons or ()) or not is_busy(device, thresholds.busy_percent):
        return
    detail = f"GPU {device.index} runs at user-set clocks: SM clock {clock_text(device)}."
    action = "To reset the clocks to their defaults: sudo nvidia-smi -rac and sudo nvidia-smi -rgc."
    evidence = evidence_of(device, *_EVIDENCE)
    yield AlertFinding("clocks_set", Severity.INFO, detail, action, evidence, "", thresholds.sustained_seconds)


def _low_clock(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """A low clock under load for which the driver reports no reason."""
    if is_clock_low(device, thresholds):
        detail = (
            f"GPU {device.index} is busy at a low SM clock, {clock_text(device)}, and the driver reports no reason."
        )
        action = "Check whether the clocks are locked (nvidia-smi -q -d CLOCK). If not, reset the GPU when it is idle."
        evidence = evidence_of(device, "utilization_gpu_percent", "performance_state", *_EVIDENCE)
        yield AlertFinding("clock_low", Severity.WARNING, detail, action, evidence, "", thresholds.sustained_seconds)


def _near_slowdown(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """A core temperature near or above the slowdown temperature."""
    if is_near_slowdown(device, thresholds):
        temperature, slowdown = device.get("temperature_celsius"), device.get("temperature_slowdown_celsius")
        detail = f"GPU {device.index} is at {temperature:.0f} °C. Its slowdown temperature is {slowdown:.0f} °C."
        evidence = evidence_of(device, *_EVIDENCE, "fan_percent")
        yield AlertFinding("temperature_high", Severity.WARNING, detail, COOLING, evidence)


def _hot_memory(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Hot device memory."""
    temperature = device.get("temperature_memory_celsius")
    if temperature is None or temperature < thresholds.temperature_memory_celsius:
        return
    detail = (
        f"The memory of GPU {device.index} is at {temperature:.0f} °C. The GPU lowers its clocks if it gets hotter."
    )
    evidence = evidence_of(device, "temperature_memory_celsius", *_EVIDENCE, "fan_percent")
    yield AlertFinding("temperature_memory_high", Severity.WARNING, detail, COOLING, evidence)


THERMAL_RULES: Final = (
    AlertRule(
        "Throttled by heat or power supply",
        _fault_throttling,
        {reason.id: f"are throttled by {reason.fault}" for reason in THROTTLE_REASONS.values() if reason.fault},
        ("throttle_reasons",),
    ),
    AlertRule(
        "At the power limit",
        _power_cap,
        {"power_cap": "run at their power limit, which is normal under full load"},
        ("throttle_reasons",),
    ),
    AlertRule(
        "User-set clocks",
        _clocks_set,
        {"clocks_set": "run at user-set clocks"},
        ("utilization_gpu_percent", "throttle_reasons"),
        margins=BUSY_MARGIN,
    ),
    AlertRule(
        "Low clock under load",
        _low_clock,
        {"clock_low": "are busy at a low SM clock, and the driver reports no reason"},
        ("utilization_gpu_percent", "throttle_reasons", "clock_sm_hertz", "clock_sm_max_hertz"),
        margins={**BUSY_MARGIN, "clock_low_percent": 5.0},
    ),
    AlertRule(
        "Near the slowdown temperature",
        _near_slowdown,
        {"temperature_high": "are near their slowdown temperature, or above it"},
        ("temperature_celsius", "temperature_slowdown_celsius"),
        margins={"temperature_margin_celsius": 2.0},
    ),
    AlertRule(
        "Memory temperature",
        _hot_memory,
        {"temperature_memory_high": "have hot memory"},
        ("temperature_memory_celsius",),
        margins={"temperature_memory_celsius": -2.0},
    ),
)
