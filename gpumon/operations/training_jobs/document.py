"""The document of ``gpumon jobs --json``."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpumon.core.collectives import RecordedCollective
from gpumon.core.problems import Problem
from gpumon.core.ranks import HangVerdict
from gpumon.operations.training_jobs.report import RankReport, TrainingJobReport

SCHEMA: Final = 1


def jobs_document(
    reports: Sequence[TrainingJobReport], host: str, problems: Sequence[Problem] = ()
) -> Mapping[str, Any]:
    """All jobs."""
    return {
        "schema": SCHEMA,
        "host": host,
        "jobs": [_job(report, host) for report in reports],
        "problems": [_problem(problem) for problem in problems],
    }


def _job(report: TrainingJobReport, host: str) -> Mapping[str, Any]:
    return {
        "id": report.id,
        "name": report.name,
        "user": report.user,
        "launcher": report.launcher or None,
        "world_size": report.world_size,
        "state": report.state.value,
        "since_seconds": _rounded(report.since_seconds, 1),
        "age_seconds": _rounded(report.age_seconds, 1),
        "headline": report.headline,
        "step_seconds": _rounded(report.step_seconds),
        "steps_per_second": _rounded(report.steps_per_second),
        "sm_percent": _rounded(report.sm_percent, 1),
        "memory_bytes": report.memory_bytes,
        "ranks": [_rank(rank, host) for rank in report.ranks],
        "verdict": None if report.verdict is None else verdict_document(report.verdict),
        "problems": [_problem(problem) for problem in report.problems],
    }


def _rank(rank: RankReport, host: str) -> Mapping[str, Any]:
    gpus = [{"label": gpu.label, "uuid": gpu.uuid} for gpu in rank.gpus]
    return {
        "rank": rank.rank,
        "host": rank.host or host,
        "is_remote": bool(rank.host),
        "pid": rank.pid,
        "gpu": gpus[0] if gpus else None,
        "gpus": gpus,
        "steps_count": rank.steps_count,
        "step_seconds": _rounded(rank.step_seconds),
        "late_seconds": _rounded(rank.late_seconds),
        "last_collective": None if rank.collective is None else collective_document(rank.collective),
        "state": rank.state or None,
        "line": rank.line or None,
        "probe": rank.probe or None,
        "since_seconds": _rounded(rank.since_seconds, 1),
        "memory_bytes": rank.memory_bytes,
        "sm_percent": _rounded(rank.sm_percent, 1),
    }


def collective_document(collective: RecordedCollective) -> Mapping[str, Any]:
    """A collective of a rank."""
    return {
        "group": collective.group,
        "name": collective.name,
        "sequence": collective.sequence,
        "size": [list(shape) for shape in collective.input_sizes],
        "dtypes": list(collective.dtypes),
        "state": collective.state.value,
    }


def verdict_document(verdict: HangVerdict) -> Mapping[str, Any]:
    """A verdict on a job."""
    return {
        "kind": verdict.kind.value,
        "is_hang": verdict.is_hang,
        "summary": verdict.summary,
        "rank": verdict.rank,
        "collective": verdict.collective or None,
        "line": verdict.line or None,
        "since_seconds": _rounded(verdict.since_seconds, 1),
        "waiting_ranks": list(verdict.waiting_ranks),
        "evidence": list(verdict.evidence),
    }


def _problem(problem: Problem) -> Mapping[str, str]:
    return {"code": problem.code.value, "reason": problem.reason, "remedy": problem.remedy}


def _rounded(value: float | None, digits: int = 6) -> float | None:
    return None if value is None else round(value, digits)
