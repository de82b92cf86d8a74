"""The reports on a training run and on the ranks of a job as JSON documents with public names."""

from dataclasses import asdict
from typing import Any, Final

from gpumon.core.step_classes import LABELS
from gpumon.insight.bottlenecks.cause import Bottleneck
from gpumon.insight.bottlenecks.slowness_evidence import GpuEvidence, StepAccount, StepShare
from gpumon.operations.why.examination import WhyReport
from gpumon.operations.why.processes import JobWhyReport

_SCHEMA: Final = 1
_SHARES: Final = ("utilization_share", "sm_share", "tensor_share", "dram_share")
_GPU_VALUES: Final = (*_SHARES, "pcie_bytes_per_second", "power_watts")


def why_document(report: WhyReport) -> dict[str, Any]:
    """The document of a report."""
    account, verdict, gpu = report.evidence.account, report.verdict, report.evidence.gpu
    return {
        "schema": _SCHEMA,
        **({"host": report.host} if report.host else {}),
        "pid": report.pid,
        "command": report.command,
        "rank": report.evidence.rank,
        "world_size": report.evidence.world_size,
        "torch_version": report.evidence.torch_version,
        "device": _device_document(report, gpu),
        "stages": list(report.stages),
        "step_seconds": account.step_seconds if account.has_steps else None,
        "mean_step_seconds": account.mean_seconds if account.has_steps else None,
        "steps_count": account.steps_count,
        "samples_count": account.samples_count,
        "seconds_observed": report.seconds,
        "account": [_share_document(share, account) for share in account.shares],
        "clock_factor": None if gpu is None else gpu.clock_share,
        "verdict": {
            "is_decided": verdict.is_decided,
            "summary": verdict.summary,
            "causes": [_cause_document(cause, has_steps=verdict.has_steps) for cause in verdict.causes],
        },
        "problems": list(report.problems),
    }


def why_job_document(report: JobWhyReport) -> dict[str, Any]:
    """The document of a report on a job."""
    straggler = report.straggler
    return {
        "schema": _SCHEMA,
        "ranks": [why_document(rank) for rank in report.ranks],
        "straggler": None if straggler is None else asdict(straggler),
        "problems": {str(where): str(problem) for where, problem in report.problems.items()},
    }


def _device_document(report: WhyReport, gpu: GpuEvidence | None) -> dict[str, Any] | None:
    if report.device is None or gpu is None:
        return None
    return {
        "index": report.device.index,
        "uuid": report.device.uuid,
        "name": report.device.name,
        **{name: getattr(gpu, name) for name in _GPU_VALUES},
        "throttle_reasons": list(gpu.throttle_reasons),
    }


def _share_document(share: StepShare, account: StepAccount) -> dict[str, Any]:
    return {
        "name": share.name,
        "label": LABELS[share.name],
        "seconds": share.seconds,
        "share": share.seconds / account.step_seconds if account.step_seconds else None,
        "pause_seconds": share.pause_seconds,
        "top": [{"name": part.name, "seconds": part.seconds, "line": part.line} for part in share.top],
    }


def _cause_document(cause: Bottleneck, *, has_steps: bool) -> dict[str, Any]:
    return {
        "name": cause.name,
        "kind": cause.kind,
        "label": cause.label,
        "seconds": cause.seconds,
        "share": cause.share,
        "bound_seconds": cause.bound_seconds if has_steps else None,
        "bound_range_seconds": list(cause.bound_range) if has_steps and cause.bound_range is not None else None,
        "base_seconds": cause.base_seconds if has_steps else None,
        "evidence": cause.evidence,
        "line": cause.line,
        "experiment": cause.experiment,
        "try": cause.try_line,
    }
