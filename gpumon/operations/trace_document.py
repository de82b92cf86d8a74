"""Traces as a JSON document with public names."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from gpumon.insight.bottlenecks.rank_comparison import RankComparison, compare
from gpumon.insight.bottlenecks.slowness_verdict import SlownessVerdict, judge_traces
from gpumon.traces.model import ClassTime, Contribution, Trace

_SCHEMA: Final = 1
_NANOSECONDS: Final = 1e9


def traces_document(traces: Sequence[Trace], top: int) -> dict[str, Any]:
    """The JSON document of one or several traces.

    ``top`` limits the kernels, gaps and contributions of each.
    """
    return {
        "schema": _SCHEMA,
        "traces": [
            _trace_document(trace, verdict, top) for trace, verdict in zip(traces, judge_traces(traces), strict=True)
        ],
        "ranks": _ranks_document(compare(traces)) if len(traces) > 1 else None,
    }


def _trace_document(trace: Trace, verdict: SlownessVerdict, top: int) -> dict[str, Any]:
    step = trace.step_ns
    return {
        "file": trace.name,
        "size_bytes": trace.size_bytes,
        "rank": trace.rank,
        "world_size": trace.world_size,
        "device": trace.device,
        "duration_seconds": trace.duration_ns / _NANOSECONDS,
        "events": dict(trace.events),
        "step": {
            "source": trace.step_source,
            "steps_count": len(trace.steps),
            "label": trace.step.label,
            "begin_seconds": trace.step.begin_ns / _NANOSECONDS,
            "duration_seconds": step / _NANOSECONDS,
            "kernels_count": trace.kernels,
            "classes": [_class_document(item, step, top) for item in trace.classes],
            "critical_path": [_class_document(item, step, top) for item in trace.critical if item.time_ns],
        },
        "verdict": _verdict_document(verdict),
        "kernels" if trace.device is not None else "operators": [
            {
                "name": total.name,
                "class": total.kind,
                "time_seconds": total.time_ns / _NANOSECONDS,
                "count": total.count,
                "max_seconds": total.max_ns / _NANOSECONDS,
            }
            for total in trace.totals[:top]
        ],
        "gaps": [
            {
                "begin_seconds": gap.begin_ns / _NANOSECONDS,
                "duration_seconds": gap.time_ns / _NANOSECONDS,
                "class": gap.cause,
                "detail": gap.detail,
                "next_kernel": gap.after,
                "line": gap.line,
            }
            for gap in trace.gaps[:top]
        ],
        "problems": list(trace.problems),
        "notes": list(trace.notes),
    }


def _class_document(item: ClassTime, step: int, top: int) -> dict[str, Any]:
    return {
        "name": item.name,
        "time_seconds": item.time_ns / _NANOSECONDS,
        "share": item.time_ns / step if step else None,
        "min_seconds": item.min_ns / _NANOSECONDS,
        "max_seconds": item.max_ns / _NANOSECONDS,
        "top": [_contribution_document(part) for part in item.top[:top]],
    }


def _contribution_document(part: Contribution) -> dict[str, Any]:
    return {
        "name": part.name,
        "time_seconds": part.time_ns / _NANOSECONDS,
        "count": part.count,
        "size_bytes": part.size_bytes,
        "line": part.line,
    }


def _verdict_document(verdict: SlownessVerdict) -> dict[str, Any]:
    return {
        "is_decided": verdict.is_decided,
        "summary": verdict.summary,
        "causes": [
            {
                "class": cause.name,
                "kind": cause.kind,
                "time_seconds": cause.seconds,
                "share": cause.share,
                "bound_seconds": cause.bound_seconds,
                "bound_range_seconds": None if cause.bound_range is None else list(cause.bound_range),
                "evidence": cause.evidence,
                "line": cause.line,
                "experiment": cause.experiment,
            }
            for cause in verdict.causes
        ],
    }


def _ranks_document(comparison: RankComparison) -> dict[str, Any]:
    document = asdict(comparison)
    for wait in document["waits"]:
        wait["wait_seconds"] = wait.pop("wait_ns") / _NANOSECONDS
    return document
