"""Sums over GPUs of a fleet."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.core.device_use import IDLE_PERCENT
from gpumon.fleet.model import FleetSnapshot

UTILIZATION: Final = "utilization_gpu_percent"
USED: Final = "memory_used_bytes"
TOTAL: Final = "memory_total_bytes"
POWER: Final = "power_watts"
CLOCK: Final = "clock_sm_hertz"


class FleetTotals(NamedTuple):
    """Sums over GPUs; a sum of values of which none is known is None.

    Attributes:
        gpus: Number of GPUs.
        busy: How many of them are not idle, or None if no utilization is known.
        utilization_percent: Mean utilization.
        power_watts: Power.
        used_bytes: Used memory.
        total_bytes: Installed memory.
    """

    gpus: int
    busy: int | None = None
    utilization_percent: float | None = None
    power_watts: float | None = None
    used_bytes: float | None = None
    total_bytes: float | None = None


def fleet_totals(snapshot: FleetSnapshot, positions: Sequence[int]) -> FleetTotals:
    """The totals of some GPUs; MIG devices count as GPUs, but the power of their GPU counts once."""
    utilization = known_values(snapshot, UTILIZATION, positions)
    return FleetTotals(
        len(positions),
        sum(value >= IDLE_PERCENT for value in utilization) if utilization else None,
        sum(utilization) / len(utilization) if utilization else None,
        _sum(snapshot, POWER, _first_of_each_gpu(snapshot, positions)),
        _sum(snapshot, USED, positions),
        _sum(snapshot, TOTAL, positions),
    )


def _first_of_each_gpu(snapshot: FleetSnapshot, positions: Sequence[int]) -> Sequence[int]:
    """The positions without further MIG devices of the same GPU."""
    gpus = snapshot.gpus
    return [
        position
        for position in positions
        if ":" not in gpus[position].label or not position or gpus[position - 1].uuid != gpus[position].uuid
    ]


def known_values(snapshot: FleetSnapshot, metric_id: str, positions: Sequence[int]) -> Sequence[float]:
    """The values of some GPUs, without those that are missing."""
    column = snapshot.values.get(metric_id)
    if column is None:
        return ()
    return [value for position in positions if (value := column[position]) == value]  # NaN differs from itself


def _sum(snapshot: FleetSnapshot, metric_id: str, positions: Sequence[int]) -> float | None:
    known = known_values(snapshot, metric_id, positions)
    return sum(known) if known else None
