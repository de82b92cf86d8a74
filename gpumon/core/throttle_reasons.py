"""Why the driver lowers a GPU's clocks (NVML's clocks-event reasons), with all texts about each reason."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple


class ThrottleReason(NamedTuple):
    """One reason.

    Attributes:
        id: NVML's name for the reason, as records have it.
        label: The name in tables, at most 13 cells.
        fault: For a reason that is a fault, what throttles the GPU: a noun that follows "throttled by". Empty for
            a reason that also holds on a healthy GPU.
        fix: What to do about a fault.
        explains_low_clock: Whether a busy GPU may run at a low clock for this reason.
    """

    id: str
    label: str
    fault: str = ""
    fix: str = ""
    explains_low_clock: bool = True


_COOLING: Final = "Check the fans, the air flow, and the room temperature, and clean dusty heat sinks."
_POWER_SUPPLY: Final = "Check the power supplies, their cables, and the power budget of the host and the rack."

THROTTLE_REASONS: Final[Mapping[str, ThrottleReason]] = {
    reason.id: reason
    for reason in (
        ThrottleReason("hw_thermal_slowdown", "too hot", "a high temperature (hardware thermal slowdown)", _COOLING),
        ThrottleReason(
            "hw_power_brake_slowdown", "power brake", "the power brake signal of the power supply", _POWER_SUPPLY
        ),
        ThrottleReason(
            "hw_slowdown",
            "hw slowdown",
            "the hardware slowdown (temperature, power supply, or power draw)",
            "Check the cooling, the power supply, and the power limit of the host.",
        ),
        ThrottleReason(
            "sw_thermal_slowdown",
            "sw too hot",
            "the driver because of a high GPU or memory temperature (software thermal slowdown)",
            _COOLING,
        ),
        ThrottleReason("sw_power_cap", "power cap"),
        ThrottleReason("sync_boost", "sync boost"),
        ThrottleReason("applications_clocks_setting", "clocks set"),
        ThrottleReason("display_clock_setting", "display clock"),
        ThrottleReason("gpu_idle", "idle", explains_low_clock=False),
    )
}
"""By NVML's name, faults first. NVML reports ``hw_slowdown`` together with the two more specific reasons above it."""

POWER_CAP: Final = "sw_power_cap"
CLOCK_SETTINGS: Final = frozenset({"applications_clocks_setting", "display_clock_setting"})
"""Reasons that hold because a user has set the clocks."""
FAULT_REASONS: Final = frozenset(reason.id for reason in THROTTLE_REASONS.values() if reason.fault)
THROTTLE_LABELS: Final = {reason.id: reason.label for reason in THROTTLE_REASONS.values()}


def main_fault(reasons: Collection[str]) -> ThrottleReason | None:
    """The most specific fault among the reasons in force, or None."""
    return next((THROTTLE_REASONS[name] for name in THROTTLE_REASONS if name in FAULT_REASONS & set(reasons)), None)


def explain_low_clock(reasons: Collection[str]) -> bool:
    """Whether one of the reasons in force explains a low clock on a busy GPU."""
    return any(name in THROTTLE_REASONS and THROTTLE_REASONS[name].explains_low_clock for name in reasons)
