"""Conditions of temperature, of what lowers the clocks, and of what a GPU does while it is busy."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.device_use import is_busy
from gpumon.core.model import Device
from gpumon.core.throttle_reasons import CLOCK_SETTINGS, POWER_CAP, explain_low_clock, main_fault
from gpumon.core.units import megahertz_text, rate_text
from gpumon.health.alerts.model import AlertFinding
from gpumon.health.alerts.rule import Thresholds, finding_of
from gpumon.health.alerts.tracking import DeviceTracker

_MIN_COPY_BYTES_PER_SECOND: Final = 1e9
"""Kernels alone cause less traffic than this."""


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


def has_no_sm_work(device: Device, thresholds: Thresholds) -> bool:
    """Whether a device is busy while its streaming multiprocessors have no work, as when it only copies.

    Decides the alert and the state on the overview.
    """
    activity = device.get("sm_activity_percent")
    return is_busy(device, thresholds.busy_percent) and activity is not None and activity <= thresholds.sm_idle_percent


def clock_text(device: Device) -> str:
    """The SM clock next to its maximum: ``1485 of 1980 MHz``."""
    max_clock = device.get("clock_sm_max_hertz")
    maximum = "" if max_clock is None else f" of {megahertz_text(max_clock)}"
    return f"{megahertz_text(device.get('clock_sm_hertz'))}{maximum} MHz"


def fault_throttling(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Clocks that heat or the power supply lowers."""
    reason = main_fault(device.throttle_reasons or ())
    if reason is not None:
        finding = finding_of("throttled", device, thresholds, fault=reason.fault, fix=reason.fix)
        yield finding._replace(id=reason.id)


def power_cap(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Clocks that the power limit lowers, which is normal under full load."""
    if POWER_CAP in (device.throttle_reasons or ()):
        limit = device.get("power_limit_watts")
        yield finding_of("power_cap", device, thresholds, limit="" if limit is None else f" of {limit:.0f} W")


def clocks_set(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Clocks that a user has set, while the GPU is busy."""
    is_set = not CLOCK_SETTINGS.isdisjoint(device.throttle_reasons or ())
    if is_set and is_busy(device, thresholds.busy_percent):
        yield finding_of("clocks_set", device, thresholds, clock=clock_text(device))


def low_clock(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """A low clock under load for which the driver reports no reason."""
    if is_clock_low(device, thresholds):
        yield finding_of("clock_low", device, thresholds, clock=clock_text(device))


def near_slowdown(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """A core temperature near or above the slowdown temperature."""
    if is_near_slowdown(device, thresholds):
        yield finding_of("temperature_high", device, thresholds)


def hot_memory(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Hot device memory."""
    if (device.get("temperature_memory_celsius") or 0.0) >= thresholds.temperature_memory_celsius:
        yield finding_of("temperature_memory_high", device, thresholds)


def busy_without_sm(device: Device, _: DeviceTracker, thresholds: Thresholds) -> Iterator[AlertFinding]:
    """Utilization without SM work: copies count as utilization too."""
    if has_no_sm_work(device, thresholds):
        traffic = _traffic_text(device)
        reason = f"It copies over {traffic}." if traffic else "It copies, or a kernel is stuck or far too small."
        yield finding_of("busy_without_sm", device, thresholds, reason=reason)


def _traffic_text(device: Device) -> str:
    """The link that carries the copies and its rate; empty where no traffic is seen or none is read."""
    for name in ("PCIe", "NVLink"):
        rate = sum(device.get(f"{name.lower()}_{way}_bytes_per_second") or 0.0 for way in ("transmit", "receive"))
        if rate >= _MIN_COPY_BYTES_PER_SECOND:
            return f"{name} at {rate_text(rate)}"
    return ""
