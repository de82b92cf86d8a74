"""The PromQL of each list, to copy into Prometheus, Grafana or an alert rule."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from gpumon.core.device_use import HELD_BYTES, LOADED_PERCENT
from gpumon.fleet.exporters import DCGM, EXPORTERS, GPUMON, PODS, Exporter
from gpumon.fleet.model import IDLE_SECONDS
from gpumon.fleet.query import MIG_LABEL, idle_query, selector, silent_query, xid_query
from gpumon.operations.fleet.findings import (
    LAGGING_SECONDS,
    SLOW_CLOCK_SHARE,
    SLOW_SHARE,
    FindingKind,
)
from gpumon.operations.fleet.totals import CLOCK, USED

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
