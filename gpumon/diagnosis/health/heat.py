"""Rules over temperature and over what lowers the clocks."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpumon.core.model import Device
from gpumon.core.units import megahertz_text
from gpumon.diagnosis.health.alert import Finding, Severity, figures
from gpumon.diagnosis.health.past import Past
from gpumon.diagnosis.health.rule import Rule, is_busy
from gpumon.diagnosis.health.thresholds import Thresholds

_COOLING: Final = "Check fans, air flow and the temperature of the room, and whether dust blocks a heat sink."
_SUPPLY: Final = "Check the power supplies, their cables, and the power budget of the machine and the rack."


class _Slowdown(NamedTuple):
    words: str
    action: str


SLOWDOWNS: Final = {
    "hw_thermal_slowdown": _Slowdown("too hot", _COOLING),
    "hw_power_brake_slowdown": _Slowdown("told by the power supply to brake", _SUPPLY),
    "hw_slowdown": _Slowdown(
        "slowed down by its hardware", "Check cooling, power supply and the power limit of the machine."
    ),
    "sw_thermal_slowdown": _Slowdown("slowed down by the driver because it or its memory is too hot", _COOLING),
}
"""Reasons for lower clocks that are faults; the driver tells the third together with the first two."""
_CLOCK_SETTINGS: Final = frozenset({"applications_clocks_setting", "display_clock_setting"})
_EXPLAINED: Final = frozenset({*SLOWDOWNS, *_CLOCK_SETTINGS, "sw_power_cap", "sync_boost"})
_EVIDENCE: Final = (
    "temperature_celsius", "temperature_slowdown_celsius", "power_watts", "power_limit_watts", "clock_sm_hertz",
    "clock_sm_max_hertz",
)  # fmt: skip


def slowed_by_fault(device: Device, _: Past, __: Thresholds) -> Iterator[Finding]:
    """Clocks that heat or the power supply lowers."""
    reasons = device.throttle_reasons or ()
    for reason, (words, action) in SLOWDOWNS.items():
        if reason in reasons:
            detail = f"GPU {device.index} runs slower than it could: {words}."
            yield Finding(reason, Severity.WARNING, detail, action, figures(device, *_EVIDENCE))
            return


def power_capped(device: Device, _: Past, __: Thresholds) -> Iterator[Finding]:
    """Clocks that the power limit lowers, which is how a healthy GPU behaves under full load."""
    if "sw_power_cap" not in (device.throttle_reasons or ()):
        return
    limit = device.get("power_limit_watts")
    of_limit = "" if limit is None else f" of {limit:.0f} W"
    detail = f"GPU {device.index} runs at its power limit{of_limit}, as a healthy one does under full load."
    action = "Nothing. Where the limit is lower than the board's own, whoever set it trades speed for power."
    yield Finding("power_cap", Severity.INFO, detail, action, figures(device, *_EVIDENCE))


def clocks_set(device: Device, _: Past, limits: Thresholds) -> Iterator[Finding]:
    """Clocks that somebody has set, while it matters."""
    if _CLOCK_SETTINGS.isdisjoint(device.throttle_reasons or ()) or not is_busy(device, limits):
        return
    clock, most = device.get("clock_sm_hertz"), device.get("clock_sm_max_hertz")
    detail = f"GPU {device.index} runs at clocks that somebody has set: {megahertz_text(clock)} MHz"
    detail += "." if most is None else f" of {megahertz_text(most)} MHz."
    action = "If that is not meant: sudo nvidia-smi -rac, and sudo nvidia-smi -rgc, give the clocks free again."
    yield Finding(
        "clocks_set", Severity.INFO, detail, action, figures(device, *_EVIDENCE), "", limits.sustained_seconds
    )


def clock_stuck(device: Device, _: Past, limits: Thresholds) -> Iterator[Finding]:
    """A low clock under load, for which the driver tells no reason."""
    clock, most = device.get("clock_sm_hertz"), device.get("clock_sm_max_hertz")
    reasons = device.throttle_reasons
    if clock is None or not most or reasons is None or not is_busy(device, limits):
        return
    if clock >= most * limits.clock_low_percent / 100 or not _EXPLAINED.isdisjoint(reasons):
        return
    detail = (
        f"GPU {device.index} works at {megahertz_text(clock)} of {megahertz_text(most)} MHz, and no reason is told."
    )
    action = "Look whether somebody locked the clocks (nvidia-smi -q -d CLOCK); else reset the GPU when it is free."
    found = figures(device, "utilization_gpu_percent", "performance_state", *_EVIDENCE)
    yield Finding("clock_low", Severity.WARNING, detail, action, found, "", limits.sustained_seconds)


def near_slowdown(device: Device, _: Past, limits: Thresholds) -> Iterator[Finding]:
    """A temperature near that at which the chip slows down."""
    temperature, slowdown = device.get("temperature_celsius"), device.get("temperature_slowdown_celsius")
    if temperature is None or slowdown is None or temperature < slowdown - limits.temperature_margin_celsius:
        return
    detail = f"GPU {device.index} has {temperature:.0f} °C and slows down at {slowdown:.0f} °C."
    found = figures(device, *_EVIDENCE, "fan_percent")
    yield Finding("temperature_high", Severity.WARNING, detail, _COOLING, found)


def hot_memory(device: Device, _: Past, limits: Thresholds) -> Iterator[Finding]:
    """Device memory that is hot."""
    temperature = device.get("temperature_memory_celsius")
    if temperature is None or temperature < limits.temperature_memory_celsius:
        return
    detail = f"The memory of GPU {device.index} has {temperature:.0f} °C; from about there on it slows the GPU down."
    found = figures(device, "temperature_memory_celsius", *_EVIDENCE, "fan_percent")
    yield Finding("temperature_memory_high", Severity.WARNING, detail, _COOLING, found)


HEAT_RULES: Final = (
    Rule("Slowed down by heat or power supply", slowed_by_fault, ("throttle_reasons",)),
    Rule("At the power limit", power_capped, ("throttle_reasons",)),
    Rule("Clocks set by somebody", clocks_set, ("utilization_gpu_percent", "throttle_reasons")),
    Rule(
        "Low clock under load",
        clock_stuck,
        ("utilization_gpu_percent", "throttle_reasons", "clock_sm_hertz", "clock_sm_max_hertz"),
    ),
    Rule("Temperature near the slowdown", near_slowdown, ("temperature_celsius", "temperature_slowdown_celsius")),
    Rule("Memory temperature", hot_memory, ("temperature_memory_celsius",)),
)
