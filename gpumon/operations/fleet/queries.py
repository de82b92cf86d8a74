"""The PromQL of each list, to copy into Prometheus, Grafana or an alert rule; and the usage that Prometheus adds up."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple

from gpumon.core.device_use import HELD_BYTES, IDLE_PERCENT, LOADED_PERCENT
from gpumon.core.problems import Problem
from gpumon.core.text import safe_text
from gpumon.fleet.exporters import DCGM, EXPORTERS, GPUMON, PODS, Exporter, pod_of
from gpumon.fleet.model import IDLE_SECONDS, FleetError
from gpumon.fleet.query import MIG_LABEL, PART, idle_query, selector, silent_query, xid_query
from gpumon.fleet.settings import FleetSettings
from gpumon.fleet.slurm import SlurmJob
from gpumon.operations.fleet.findings import (
    CLOCK,
    LAGGING_SECONDS,
    POWER,
    SLOW_CLOCK_SHARE,
    SLOW_SHARE,
    USED,
    UTILIZATION,
    FindingKind,
)

PROCESSES: Final = "gpumon_process_gpu_memory_bytes"
"""The metric of gpumon's exporter that names users."""


class FleetList(Enum):
    """A list of the screen; the value is its name for the user."""

    MAP = "Map"
    HOSTS = "Hosts"
    GPUS = "GPUs"
    JOBS = "Jobs"
    USERS = "Users"
    FINDINGS = "Findings"
    USAGE = "Usage"


def list_query(kind: FleetList, exporters: Iterable[str], match: str = "") -> str:
    """The PromQL that lists what a list shows, except `FleetList.USAGE`."""
    used = used_exporters(exporters)
    if kind is FleetList.FINDINGS:
        return silent_query(match)
    if kind is FleetList.USERS:
        return f"count by (user) (count by (uuid, user) ({selector(match, PROCESSES)}))"
    return " or ".join(_utilization(exporter, kind, match) for exporter in used)


def finding_query(
    kind: FindingKind, exporters: Iterable[str], match: str = "", idle_seconds: float = IDLE_SECONDS
) -> str:
    """The PromQL that finds what a finding reports, with the GPUs' own labels where it is about GPUs."""
    if kind in {FindingKind.SILENT, FindingKind.LOST}:
        return silent_query(match)
    if kind is FindingKind.XID:
        return xid_query(match)
    queries = []
    for exporter in used_exporters(exporters):
        utilization = selector(match, exporter.primary)
        identity = _listed(*exporter.uuids, MIG_LABEL)
        busy = f"{utilization} >= {LOADED_PERCENT / exporter.metrics[exporter.primary].factor:g}"
        if kind is FindingKind.IDLE:
            name, factor = _source(exporter, USED)
            held = f"{selector(match, name)} >= {HELD_BYTES / factor:.0f}"
            queries.append(f"{held} and on ({identity}) ({idle_query(exporter, match, idle_seconds)})")
        elif kind is FindingKind.SLOW_CLOCK:
            clock = f"({selector(match, _source(exporter, CLOCK)[0])} and on ({identity}) ({busy}))"
            models = _listed(*exporter.models)
            usual = f"quantile by ({models}) (0.5, {clock})"
            queries.append(f"{clock} < on ({models}) group_left () ({SLOW_CLOCK_SHARE} * {usual})")
        elif kind is FindingKind.SLOW_IN_JOB:
            if exporter.jobs:
                jobs = _listed(*exporter.jobs)
                named = selector(_and(match, f'{exporter.jobs[0]}!=""'), exporter.primary)
                queries.append(
                    f"{named} < on ({jobs}) group_left () ({SLOW_SHARE} * quantile by ({jobs}) (0.5, {named}))"
                )
        else:
            queries.append(f"time() - timestamp({utilization}) > {LAGGING_SECONDS:.0f}")
    return " or ".join(queries)


def used_exporters(names: Iterable[str]) -> Sequence[Exporter]:
    """The exporters with these names; dcgm-exporter if there is none."""
    return [exporter for exporter in EXPORTERS if exporter.name in set(names)] or [DCGM]


def job_labels(exporter: Exporter) -> Sequence[str]:
    """Labels that name the job and the pod of a GPU."""
    return (*exporter.jobs, *PODS)


def _utilization(exporter: Exporter, kind: FleetList, match: str) -> str:
    utilization = selector(match, exporter.primary)
    if kind in {FleetList.MAP, FleetList.HOSTS}:
        return f"avg by ({_listed('instance', *exporter.hosts)}) ({utilization})"
    if kind is FleetList.JOBS:
        if exporter is GPUMON:
            labels = _listed("hpc_job", *PODS)
            return f"count by ({labels}) (count by (uuid, {labels}) ({selector(match, PROCESSES)}))"
        return f"count by ({_listed(*job_labels(exporter))}) ({utilization})"
    return utilization


def _source(exporter: Exporter, metric_id: str) -> tuple[str, float]:
    """The name of a metric, and its factor."""
    return next((name, metric.factor) for name, metric in exporter.metrics.items() if metric.id == metric_id)


def _and(*matchers: str) -> str:
    return ",".join(filter(None, matchers))


def _listed(*labels: str) -> str:
    return ", ".join(dict.fromkeys(labels))


DEFAULT_SECONDS: Final = 86_400.0
RANGES: Final = (3600.0, 6 * 3600.0, DEFAULT_SECONDS, 7 * DEFAULT_SECONDS)
LOW_PERCENT: Final = 30.0
"""GPU-hours below this utilization are low, and idle below `IDLE_PERCENT`."""
_STEPS: Final = 288
"""Moments of the range at which Prometheus looks: every five minutes of a day."""
_MIN_STEP_SECONDS: Final = 1.0
_MAX_POWER_WATTS: Final = 5000.0
_MAX_PERCENT: Final = 100.0
_MAX_BYTES: Final = 32 << 20
_TIMEOUT_SECONDS: Final = 60.0
_MAX_LABEL: Final = 128
_SECONDS: Final = 3600.0
_PARTS: Final = ("active", "low", "idle", "energy")


class UsageRow(NamedTuple):
    """What a user or a job has used.

    Attributes:
        user: The user, or empty.
        job: The job or the pod, or empty.
        active_hours: GPU-hours with a utilization of at least `LOW_PERCENT`.
        low_hours: GPU-hours below that.
        idle_hours: GPU-hours below `IDLE_PERCENT`.
        energy_joules: Energy, or None if the exporter does not report power.
    """

    user: str
    job: str
    active_hours: float = 0.0
    low_hours: float = 0.0
    idle_hours: float = 0.0
    energy_joules: float | None = None

    @property
    def hours(self) -> float:
        """All GPU-hours."""
        return self.active_hours + self.low_hours + self.idle_hours


class FleetUsage(NamedTuple):
    """Usage over a range.

    Attributes:
        seconds: Length of the range, which ends now.
        rows: The rows, that with the most GPU-hours first.
        problem: Why there are no rows, or None.
    """

    seconds: float
    rows: tuple[UsageRow, ...] = ()
    problem: Problem | None = None


def usage_query(exporters: Iterable[str], seconds: float = DEFAULT_SECONDS, match: str = "") -> str:
    """The PromQL of the usage: GPU-hours in the parts ``active``, ``low`` and ``idle``, and joules."""
    step = usage_step(seconds)
    window = f"[{seconds:.0f}s:{step:.0f}s]"
    parts = []
    for exporter in used_exporters(exporters):
        labels = ", ".join(("user", "hpc_job", *PODS) if exporter is GPUMON else job_labels(exporter))
        utilization, factor = _series(exporter, UTILIZATION, match)
        low, idle, most = LOW_PERCENT / factor, IDLE_PERCENT / factor, _MAX_PERCENT / factor
        ranges = (f">= {low:g} <= {most:g}", f">= {idle:g} < {low:g}", f"< {idle:g}")
        for part, condition in zip(_PARTS, ranges, strict=False):
            hours = f"sum by ({labels}) (count_over_time(({utilization} {condition}){window})) * {step / _SECONDS:.12g}"
            parts.append(_named(part, exporter, hours))
        power, factor = _series(exporter, POWER, match)
        if power:
            joules = f"sum by ({labels}) (sum_over_time(({power} < {_MAX_POWER_WATTS / factor:g}){window}))"
            parts.append(_named(_PARTS[-1], exporter, f"{joules} * {step * factor:.12g}"))
    return " or ".join(parts)


def usage_step(seconds: float) -> float:
    """Seconds between two moments at which Prometheus looks; each counts for the time up to the next one."""
    return max(_MIN_STEP_SECONDS, round(seconds / _STEPS))


def read_usage(settings: FleetSettings, exporters: Iterable[str], seconds: float = DEFAULT_SECONDS) -> FleetUsage:
    """Let Prometheus add up the usage."""
    from gpumon.fleet.prometheus import Prometheus  # late: few sessions read Prometheus

    rows: dict[tuple[str, str], UsageRow] = {}
    try:
        address = replace(settings.address, max_bytes=_MAX_BYTES, timeout_seconds=_TIMEOUT_SECONDS)
        prometheus = Prometheus(address)
        with prometheus.reading():
            for labels, value in prometheus.query(usage_query(exporters, seconds, settings.match)):
                _add(rows, labels, value)
    except FleetError as error:
        return FleetUsage(seconds, problem=error.problem)
    return FleetUsage(seconds, tuple(sorted(rows.values(), key=lambda row: (-row.hours, row.user, row.job))))


def with_users(rows: Sequence[UsageRow], jobs: Mapping[str, SlurmJob]) -> Sequence[UsageRow]:
    """The rows with the users of jobs that run, where Slurm knows them and the exporter does not."""
    if not jobs:
        return rows
    return [row._replace(user=jobs[row.job].user) if not row.user and row.job in jobs else row for row in rows]


def _add(rows: dict[tuple[str, str], UsageRow], labels: Mapping[str, str], value: float) -> None:
    part = labels.get(PART, "").partition(" ")[0]
    if part not in _PARTS or not value < float("inf"):
        return
    user = safe_text(labels.get("user", ""), _MAX_LABEL)
    job = safe_text(labels.get("hpc_job", "") or pod_of(labels), _MAX_LABEL)
    row = rows.get((user, job), UsageRow(user, job))
    field = "energy_joules" if part == "energy" else f"{part}_hours"
    rows[user, job] = UsageRow(**(row._asdict() | {field: (getattr(row, field) or 0.0) + value}))


def _series(exporter: Exporter, metric_id: str, match: str) -> tuple[str, float]:
    """An expression with a series for each GPU and user, and its factor; empty if the exporter lacks the metric."""
    name, factor = next(
        ((name, metric.factor) for name, metric in exporter.metrics.items() if metric.id == metric_id), ("", 1.0)
    )
    if not name or exporter is not GPUMON:
        return selector(match, name) if name else "", factor
    users = f"max by (uuid, user, hpc_job, {', '.join(PODS)}) ({selector(match, PROCESSES)}) * 0 + 1"
    return f"(max by (uuid) ({selector(match, name)}) * on (uuid) group_right () ({users}))", factor


def _named(part: str, exporter: Exporter, expression: str) -> str:
    return f'label_replace({expression}, "{PART}", "{part} {exporter.name}", "", "")'
