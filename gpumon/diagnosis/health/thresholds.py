"""From which values on a figure deserves attention; the table ``[health]`` of the configuration file."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Final

from gpumon.core.text import safe_text

_MOST: Final = 1e9


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the rules compare with. All can be set; the unit is in the name.

    Attributes:
        temperature_margin_celsius: So near the temperature at which it slows down a GPU is hot.
        temperature_memory_celsius: From here on its memory is hot.
        busy_percent: A GPU is at work from this utilization on.
        sustained_seconds: So long a GPU at work must run at a low clock, or over a slow link, to be told of.
        clock_low_percent: Below this share of its maximum the SM clock is low.
        idle_percent: A GPU is idle up to this utilization.
        idle_memory_gib: An idle GPU is told of from so much memory in use on.
        idle_seconds: And from so long on.
        sm_idle_percent: Up to this SM activity the multiprocessors have no work.
        sm_idle_seconds: A GPU that is busy without them is told of from so long on.
        memory_unattributed_percent: Memory without an owner is told of from this share of the memory on.
        ecc_corrected_per_hour: From this rate on corrected memory errors are a warning.
        pcie_replays_per_minute: From this rate on packets that had to be sent again are a warning.
        xid_minutes: So long after it came an Xid is told of.
        leak_minutes: So long a process's memory must have grown to be told of; no more than ten minutes are remembered.
        leak_growth_mib: And by so much at least.
        leak_warning_hours: A process that will have used up the memory in so long is a warning.
        leak_horizon_hours: One that takes longer than that is not told of.
    """

    temperature_margin_celsius: float = 3.0
    temperature_memory_celsius: float = 95.0
    busy_percent: float = 90.0
    sustained_seconds: float = 30.0
    clock_low_percent: float = 50.0
    idle_percent: float = 2.0
    idle_memory_gib: float = 1.0
    idle_seconds: float = 30.0
    sm_idle_percent: float = 1.0
    sm_idle_seconds: float = 30.0
    memory_unattributed_percent: float = 1.0
    ecc_corrected_per_hour: float = 60.0
    pcie_replays_per_minute: float = 8.0
    xid_minutes: float = 60.0
    leak_minutes: float = 5.0
    leak_growth_mib: float = 256.0
    leak_warning_hours: float = 1.0
    leak_horizon_hours: float = 24.0

    @classmethod
    def of(cls, table: Mapping[str, object]) -> "Thresholds":
        """The thresholds of a table of names and numbers; those that it does not name keep their defaults.

        Raises:
            ValueError: A name is not known, or a value is not a number that can be meant.
        """
        names = [each.name for each in fields(cls)]
        chosen: dict[str, float] = {}
        for name, value in table.items():
            if name not in names:
                near = get_close_matches(name, names, n=1)
                hint = f"; near it is {near[0]}" if near else ""
                raise ValueError(f"there is no threshold {safe_text(name, 40)!r}{hint}.")
            chosen[name] = _number(name, value)
        return cls(**chosen)


def _number(name: str, value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _MOST:
        return float(value)
    raise ValueError(f"{name} must be a number from 0 to {_MOST:.0f}, not {safe_text(repr(value), 40)}.")


DEFAULTS: Final = Thresholds()
"""The thresholds of a user who has set none."""
