"""Why the driver lowers a GPU's clocks (NVML's clocks-event reasons), with all texts about each reason."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from gpumon.core.text_table import table


class ThrottleReason(NamedTuple):
    """One reason.

    Attributes:
        id: NVML's name for the reason, as records have it.
        label: The name in tables, at most 13 cells.
        fault: For a reason that is a fault, what throttles the GPU: a noun that follows "throttled by". Empty for
            a reason that also holds on a healthy GPU.
        fix: What to do about a fault.
    """

    id: str
    label: str
    fault: str = ""
    fix: str = ""

    @property
    def explains_low_clock(self) -> bool:
        """Whether a busy GPU may run at a low clock for this reason."""
        return self.id != "gpu_idle"


_ROWS: Final = [ThrottleReason(*row.split(" | ")) for row in table("gpumon.core", "throttle_reasons")]
THROTTLE_REASONS: Final[Mapping[str, ThrottleReason]] = {reason.id: reason for reason in _ROWS}
"""By NVML's name, faults first."""

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
