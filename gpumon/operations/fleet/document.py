"""A fleet as a JSON document."""

from collections.abc import Mapping
from typing import Any, Final

from gpumon.core.problems import Problem, ProblemCode
from gpumon.fleet.exporters import SHOWN_METRICS
from gpumon.fleet.model import AGE, LAST_XID, FleetSnapshot
from gpumon.operations.fleet.queries import FleetUsage
from gpumon.operations.fleet.report import FleetGroup, FleetReport

SCHEMA: Final = 1


def fleet_document(report: FleetReport) -> Mapping[str, Any]:
    """The document of ``gpumon fleet --json``: values of every GPU, null where there is none, with the reason."""
    snapshot = report.snapshot
    return {
        "schema": SCHEMA,
        "time_seconds": snapshot.time_seconds,
        "query_seconds": round(snapshot.seconds, 3),
        "totals": report.totals._asdict(),
        "exporters": dict(snapshot.exporters),
        "not_reported": {name: list(metrics) for name, metrics in snapshot.missing.items()},
        "silent_hosts": list(snapshot.silent_hosts),
        "hosts": [
            {
                "name": row.name,
                "is_silent": not row.positions,
                "problem": _problem_document(snapshot.host_problems.get(row.name)),
                "age_seconds": _rounded(row.age_seconds),
                "totals": row.totals._asdict(),
            }
            for row in report.hosts
        ],
        "jobs": [_job_document(row) for row in report.jobs],
        "slurm_problem": None if report.slurm is None else _problem_document(report.slurm.queue.problem),
        "gpus": [_gpu_document(snapshot, position) for position in range(len(snapshot.gpus))],
        "findings": [
            {
                "kind": finding.kind.name.lower(),
                "host": finding.host,
                "gpu": None if finding.position is None else snapshot.gpus[finding.position].label,
                "uuid": None if finding.position is None else snapshot.gpus[finding.position].uuid,
                "text": finding.text,
            }
            for finding in report.findings
        ],
    }


def _job_document(row: FleetGroup) -> Mapping[str, Any]:
    return {
        "job": row.name,
        "name": row.title or None,
        "users": list(row.users),
        "hosts": row.hosts,
        "requested_gpus": row.requested,
        "gpus": len(row.positions),
        "used_gpus": row.used,
        "totals": row.totals._asdict(),
    }


def _gpu_document(snapshot: FleetSnapshot, position: int) -> Mapping[str, Any]:
    gpu = snapshot.gpus[position]
    values = {metric_id: snapshot.value(metric_id, position) for metric_id in SHOWN_METRICS}
    names = {"host": gpu.host, "gpu": gpu.label, "uuid": gpu.uuid, "model": gpu.model, "exporter": gpu.exporter}
    owners = {"user": gpu.user, "job": gpu.job, "pod": gpu.pod}
    xid = snapshot.value(LAST_XID, position)
    return {
        **names,
        **{name: text or None for name, text in owners.items()},
        "age_seconds": _rounded(snapshot.value(AGE, position)),
        "last_xid": None if xid is None else int(xid),
        **values,
        "problems": {
            metric_id: _problem_document(problem)
            for metric_id, value in values.items()
            if value is None and (problem := missing_value(snapshot, position, metric_id))
        },
    }


def missing_value(snapshot: FleetSnapshot, position: int, metric_id: str) -> Problem:
    """Why a GPU has no value of a metric."""
    exporter = snapshot.gpus[position].exporter
    if metric_id in snapshot.missing.get(exporter, ()):
        return Problem(ProblemCode.NOT_SUPPORTED, f"{exporter} does not report it.")
    return Problem(ProblemCode.NOT_READ, f"{exporter} has no value for this GPU.")


def _problem_document(problem: Problem | None) -> Mapping[str, str] | None:
    return None if problem is None else {"code": problem.code.value, "reason": problem.reason}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def usage_document(usage: FleetUsage) -> Mapping[str, Any]:
    """The usage; rows without a job have null."""
    return {
        "range_seconds": usage.seconds,
        "rows": [{**row._asdict(), "user": row.user or None, "job": row.job or None} for row in usage.rows],
    }
