"""Hosts and GPUs of a fleet that stand out."""

from array import array
from collections.abc import Container, Iterable, Mapping, Sequence
from enum import Enum
from math import isnan, nan
from statistics import median
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.core.device_use import HELD_BYTES, IDLE_PERCENT, LOADED_PERCENT
from gpumon.core.units import age_text, bytes_text, counted
from gpumon.core.xids import xid_text
from gpumon.fleet.model import AGE, BUSIEST, IDLE_SECONDS, LAST_XID, FleetSnapshot
from gpumon.fleet.slurm import SlurmJob

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


SLOW_CLOCK_SHARE: Final = 0.8
SLOW_SHARE: Final = 0.5
"""A GPU below this share of its job's median utilization or power is slow."""
MIN_COMPARED: Final = 4
"""GPUs of one model or job below which a median means nothing."""
LAGGING_SECONDS: Final = 120.0
_SILENT: Final = "the target is down, or its GPUs are gone"


class FindingKind(Enum):
    """Why a host or a GPU is listed, the most urgent first; the value is its name for the user."""

    SILENT = "silent"
    LOST = "GPUs missing"
    XID = "Xid"
    SLOW_CLOCK = "slow clock"
    SLOW_IN_JOB = "slow in its job"
    IDLE = "allocated, idle"
    LAGGING = "old values"


class FleetFinding(NamedTuple):
    """A host or a GPU that stands out.

    Attributes:
        kind: Why.
        host: The host.
        text: The evidence.
        position: Position of the GPU in the snapshot, or None for a host.
    """

    kind: FindingKind
    host: str
    text: str
    position: int | None = None


def fleet_findings(
    snapshot: FleetSnapshot,
    by_host: Mapping[str, Sequence[int]],
    by_job: Mapping[str, Sequence[int]],
    slurm_jobs: Mapping[str, SlurmJob] = MappingProxyType({}),
) -> Sequence[FleetFinding]:
    """Everything that stands out, the most urgent first, then by host."""
    problems, silent = snapshot.host_problems, frozenset(snapshot.silent_hosts)
    findings = [
        FleetFinding(FindingKind.SILENT, host, str(problems.get(host) or _SILENT)) for host in snapshot.silent_hosts
    ]
    findings += [
        FleetFinding(FindingKind.LAGGING, host, str(problem))
        for host, problem in problems.items()
        if host not in silent
    ]
    for host, count in snapshot.lost_gpus.items():
        text = f"{counted(count, 'GPU')} reported within the last hour and {'does' if count == 1 else 'do'} not now"
        findings.append(FleetFinding(FindingKind.LOST, host, text))
    findings += _xid_findings(snapshot)
    findings += _clock_findings(snapshot)
    idle = list(_idle_findings(snapshot, slurm_jobs))
    findings += idle
    findings += _job_findings(snapshot, by_job, {finding.position for finding in idle})
    findings += _lagging_findings(snapshot, by_host)
    order = {kind: number for number, kind in enumerate(FindingKind)}
    return sorted(findings, key=lambda finding: (order[finding.kind], finding.host, finding.position or 0))


def _xid_findings(snapshot: FleetSnapshot) -> Iterable[FleetFinding]:
    for position, value in _values(snapshot, LAST_XID):
        if value:
            yield _finding(FindingKind.XID, snapshot, position, xid_text(int(value)))


def _idle_findings(snapshot: FleetSnapshot, slurm_jobs: Mapping[str, SlurmJob]) -> Iterable[FleetFinding]:
    """GPUs that hold memory or that a job has, and whose busiest moment of the last half hour was idle."""
    used = snapshot.values.get(USED)
    for position, value in _values(snapshot, BUSIEST):
        if value >= IDLE_PERCENT:
            continue
        held = nan if used is None else used[position]
        job = slurm_jobs.get(snapshot.gpus[position].job)
        seconds = 0.0 if job is None else snapshot.time_seconds - (job.start_seconds or 0.0)
        if job is not None and seconds >= IDLE_SECONDS:
            text = f"idle for 30 min; job {job.id}{job.user and f' of {job.user}'}"
            memory = f"; {bytes_text(held)}" if held >= HELD_BYTES else ""
            yield _finding(FindingKind.IDLE, snapshot, position, text + memory)
        elif held >= HELD_BYTES:
            yield _finding(FindingKind.IDLE, snapshot, position, f"idle for 30 min; holds {bytes_text(held)}")


def _clock_findings(snapshot: FleetSnapshot) -> Iterable[FleetFinding]:
    """Busy GPUs whose clock is low compared with the busy GPUs of their model."""
    utilization, clocks = snapshot.values.get(UTILIZATION), snapshot.values.get(CLOCK)
    if utilization is None or clocks is None:
        return
    by_model: dict[str, list[int]] = {}
    for position, gpu in enumerate(snapshot.gpus):
        if utilization[position] >= LOADED_PERCENT and not isnan(clocks[position]):
            by_model.setdefault(gpu.model, []).append(position)
    for positions in by_model.values():
        if len(positions) < MIN_COMPARED:
            continue
        usual = median([clocks[position] for position in positions])
        for position in positions:
            if clocks[position] < SLOW_CLOCK_SHARE * usual:
                text = f"{clocks[position] / 1e6:.0f} MHz; median of its model {usual / 1e6:.0f} MHz"
                yield _finding(FindingKind.SLOW_CLOCK, snapshot, position, text)


def _job_findings(
    snapshot: FleetSnapshot, by_job: Mapping[str, Sequence[int]], idle: Container[int | None]
) -> Iterable[FleetFinding]:
    """GPUs that do much less than the others of their job, without those that are listed as idle."""
    metrics = ((UTILIZATION, "utilization", "%"), (POWER, "power", " W"))
    for positions in by_job.values():
        median_utilization = _median(snapshot, UTILIZATION, positions)
        if median_utilization is None or median_utilization < LOADED_PERCENT:
            continue
        for metric_id, name, unit in metrics:
            usual = _median(snapshot, metric_id, positions)
            column = snapshot.values.get(metric_id)
            if usual is None or column is None:
                continue
            limit = SLOW_SHARE * usual
            slow = [position for position in positions if column[position] < limit and position not in idle]
            for position in slow:
                text = f"{name} {column[position]:.0f}{unit}; median of its job {usual:.0f}{unit}"
                yield _finding(FindingKind.SLOW_IN_JOB, snapshot, position, text)
            if slow:
                break  # low utilization explains low power


def _median(snapshot: FleetSnapshot, metric_id: str, positions: Sequence[int]) -> float | None:
    known = known_values(snapshot, metric_id, positions)
    return median(known) if len(known) >= MIN_COMPARED else None


def _lagging_findings(snapshot: FleetSnapshot, by_host: Mapping[str, Sequence[int]]) -> Iterable[FleetFinding]:
    ages = snapshot.values.get(AGE)
    for host, positions in by_host.items():
        age = None if ages is None else ages[positions[0]]
        if age is not None and age > LAGGING_SECONDS:
            yield FleetFinding(FindingKind.LAGGING, host, f"newest values are {age_text(age)} old")


def _finding(kind: FindingKind, snapshot: FleetSnapshot, position: int, text: str) -> FleetFinding:
    return FleetFinding(kind, snapshot.gpus[position].host, text, position)


def _values(snapshot: FleetSnapshot, metric_id: str) -> Iterable[tuple[int, float]]:
    """Positions and values that are known."""
    column: array[float] | tuple[()] = snapshot.values.get(metric_id, ())
    return ((position, value) for position, value in enumerate(column) if not isnan(value))
