"""The second stage: a trace of a few steps makes the times of the GPU exact; the samples keep their lines."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from gpumon.core.problems import CommandError
from gpumon.core.step_classes import (
    COMMUNICATION,
    COPIES,
    DATA,
    GPU_WORK,
    HOST,
    IDLE,
    MEMORY,
    SAMPLED_CLASSES,
    SIMT,
    SYNC,
    TENSOR,
)
from gpumon.insight.bottlenecks.evidence import OperatorUse, StepAccount, StepPart, StepShare, TraceEvidence
from gpumon.insight.bottlenecks.overlays import LAUNCHING
from gpumon.operations.record_trace import record_traces
from gpumon.operations.why.examination import TRACE, ExaminationProgress, Listener, WhyReport, renewed
from gpumon.probe.client import ProbeWatcher
from gpumon.traces import reader
from gpumon.traces.model import ClassTime, Trace

_STEPS: Final = 8
_MIN_MILLISECONDS: Final = 500
_MAX_MILLISECONDS: Final = 5000
_MIN_STEPS: Final = 2
_LONG_STEPS: Final = 4.5
"""A window of this many long steps has two that are complete, although recording makes them longer."""
_LIMIT_MILLISECONDS: Final = 10_000
_NANOSECONDS: Final = 1e9
_MAX_TOP: Final = 5
_OF_TRACE: Final = frozenset({GPU_WORK, HOST, SYNC, IDLE, COPIES, COMMUNICATION})
"""Classes of which only a trace knows how much of the step they are."""
_AFTERWARDS: Final = (
    "After a trace, launches take longer in this process until it ends: CUPTI stays attached. --no-trace avoids it."
)
_ELEMENTWISE: Final = re.compile(r"elementwise_kernel|Memcpy DtoD|CatArray|copy_kernel", re.IGNORECASE)
"""Kernels that torch.compile fuses with other kernels."""
_FREEING: Final = ("cudaFree", "cudaMalloc", "cuMemUnmap", "cuMemRelease", "cuMemCreate", "cuMemMap", "cuMemSetAccess")


def with_trace(report: WhyReport, watcher: ProbeWatcher, listener: Listener) -> WhyReport:
    """Have the process record a trace of a few steps, and judge again; without a usable trace, say why there is none.

    Args:
        report: The report of the first stage.
        watcher: The connection to the probes. Its inbox is drained.
        listener: Follows the examination.
    """
    account = report.evidence.account
    milliseconds = window_milliseconds(account.step_seconds)
    listener.on_progress(ExaminationProgress("recording a trace", 0.0, None))
    recorded = record_traces(watcher, [report.pid], milliseconds)[0]
    if recorded.path is None:
        reason = "no reason" if recorded.problem is None else str(recorded.problem)
        return replace(report, problems=(*report.problems, f"Without a trace: {reason}"))
    listener.on_progress(ExaminationProgress("reading the trace", 0.0, None))
    try:
        trace = reader.read(recorded.path).trace
    except CommandError as error:
        return replace(report, problems=(*report.problems, f"Without a trace: {error.problem}"))
    finally:
        with suppress(OSError):
            recorded.path.unlink()
    unusable = _unusable(trace)
    if unusable:
        return replace(report, problems=(*report.problems, *unusable))
    thread = report.evidence.thread_account or account
    evidence = replace(
        report.evidence,
        account=traced_account(account, trace, thread),
        trace=trace_evidence(trace, account.step_seconds),
    )
    return renewed(report, evidence, TRACE, (*recorded.notes, _AFTERWARDS))


def window_milliseconds(step_seconds: float) -> int:
    """How long to record steps of a duration."""
    preferred = min(max(1000 * _STEPS * step_seconds, _MIN_MILLISECONDS), _MAX_MILLISECONDS)
    return round(min(max(preferred, 1000 * _LONG_STEPS * step_seconds), _LIMIT_MILLISECONDS))


def _unusable(trace: Trace) -> tuple[str, ...]:
    """Why a trace gives no account, in sentences; empty if it does."""
    if trace.device is None or not trace.kernels:
        return ("Without a trace: the recorded one has no kernels.",)
    if trace.problems:
        return tuple(f"Without a trace: {problem}" for problem in trace.problems)
    if len(trace.steps) < _MIN_STEPS:
        return ("Without a trace: the recorded one has no complete steps.",)
    return ()


def traced_account(sampled: StepAccount, trace: Trace, thread: StepAccount) -> StepAccount:
    """The account of a trace, for the median step that was observed, with the lines and the reasons of the samples.

    What an observed step takes longer than the traced one belongs to the classes of the samples that explain it.
    Recording makes each launch longer, so what the median step of the trace takes longer than the observed one is taken
    from its host-bound time, and the rest is scaled to the duration of the latter. What the samples know of the time in
    which the GPU waits for the host is taken from that time.

    Args:
        sampled: The account of the samples.
        trace: The trace, which has kernels.
        thread: The account of the main thread alone, which has the lines.
    """
    granted = _longer_than_traced(sampled, trace)
    scale, host_scale = _scales(trace, sampled.step_seconds - sum(granted.values()))
    shares = {item.name: _share(item, host_scale if item.name == HOST else scale, thread) for item in trace.classes}
    for name, seconds in granted.items():
        old = shares.get(name, StepShare(name, 0.0))
        shares[name] = replace(old, seconds=old.seconds + seconds)
    for share in sampled.shares:
        if share.name in _OF_TRACE:
            continue
        old = shares.get(share.name, StepShare(share.name, 0.0))
        missing = max(0.0, share.seconds - old.seconds)
        for source in (HOST, IDLE):
            available = shares.get(source, StepShare(source, 0.0))
            taken = min(missing, available.seconds)
            shares[source] = replace(available, seconds=available.seconds - taken)
            missing -= taken
            old = replace(old, seconds=old.seconds + taken)
        shares[share.name] = replace(old, pause_seconds=share.pause_seconds, top=share.top or old.top)
    kept = [share for share in shares.values() if share.seconds > 0 or share.pause_seconds > 0]
    return replace(sampled, shares=tuple(sorted(kept, key=lambda share: _position(share.name))), is_traced=True)


def _longer_than_traced(sampled: StepAccount, trace: Trace) -> dict[str, float]:
    """What the observed step takes longer than the traced one, by the classes of the samples that explain it.

    The time that a step waits for data, or computes on the host, varies between steps; that of the work on the GPU does
    not.
    """
    longer = sampled.step_seconds - trace.step_ns / _NANOSECONDS
    if longer <= 0:
        return {}
    needs = {
        share.name: share.seconds - trace.class_time(share.name).time_ns / _NANOSECONDS
        for share in sampled.shares
        if share.name not in _OF_TRACE
    }
    needs = {name: seconds for name, seconds in needs.items() if seconds > 0}
    total = sum(needs.values())
    return {name: seconds * min(1.0, longer / total) for name, seconds in needs.items()}


class _Scales(NamedTuple):
    """Factors from nanoseconds of a trace to seconds of the step that was observed."""

    device: float
    host: float


def _scales(trace: Trace, step_seconds: float) -> _Scales:
    """What a step takes longer because it is recorded belongs to its host-bound time."""
    longer_ns = max(0, trace.step_ns - round(step_seconds * _NANOSECONDS))
    host_ns = trace.class_time(HOST).time_ns
    recording_ns = min(host_ns, longer_ns)
    device = step_seconds / (trace.step_ns - recording_ns) if trace.step_ns > recording_ns else 0.0
    return _Scales(device, device * (host_ns - recording_ns) / host_ns if host_ns else 0.0)


def trace_evidence(trace: Trace, step_seconds: float) -> TraceEvidence:
    """What a trace shows in addition to its account, scaled to the median step that was observed.

    Args:
        trace: The trace.
        step_seconds: Duration of that step.
    """
    scales = _scales(trace, step_seconds)
    copies = trace.class_time(COPIES).top
    sent = [part for part in copies if "HtoD" in part.name]
    waits = (*trace.class_time(SYNC).top, *trace.class_time(HOST).top)
    tensor = trace.class_time(TENSOR).top
    step = trace.step_ns or 1
    return TraceEvidence(
        kernels_count=trace.kernels,
        median_kernel_seconds=None if trace.median_kernel_ns is None else trace.median_kernel_ns / _NANOSECONDS,
        pageable_copy_seconds=scales.device * sum(part.time_ns for part in copies if "Pageable" in part.name),
        copied_bytes=sum(part.size_bytes or 0 for part in copies),
        copies_count=sum(part.count for part in copies),
        sent_bytes=sum(part.size_bytes or 0 for part in sent),
        sent_count=sum(part.count for part in sent),
        free_seconds=scales.device * sum(part.time_ns for part in waits if part.name.startswith(_FREEING)),
        simt_share=trace.class_time(SIMT).time_ns / step,
        tf32_share=sum(part.time_ns for part in tensor if "tf32" in part.name.lower()) / step,
        elementwise_seconds=scales.device
        * sum(part.time_ns for part in trace.class_time(MEMORY).top if _ELEMENTWISE.search(part.name)),
        calls={part.name: part.time_ns * scales.host for part in trace.class_time(HOST).top},
        operators=_operators(trace, scales.host),
    )


def _operators(trace: Trace, scale: float) -> Mapping[str, OperatorUse]:
    steps = len(trace.steps)
    return {
        total.name: OperatorUse(total.time_ns * scale / steps, total.count / steps, total.max_ns * scale)
        for total in trace.operators
    }


def _share(item: ClassTime, scale: float, thread: StepAccount) -> StepShare:
    """A class of the trace; its parts are the lines of the samples where the trace has none."""
    seconds = item.time_ns * scale
    parts = tuple(StepPart(part.name, part.time_ns * scale, part.line) for part in item.top[:_MAX_TOP])
    lines = _lines(item.name, thread)
    if not any(part.line for part in parts) and lines:
        total = sum(part.seconds for part in lines)
        parts = (
            tuple(
                replace(part, seconds=seconds * part.seconds / total if total else seconds / len(lines))
                for part in lines
            )
            + parts[: max(0, _MAX_TOP - len(lines))]
        )
    return StepShare(item.name, seconds, top=parts)


def _lines(name: str, thread: StepAccount) -> tuple[StepPart, ...]:
    """The lines at which the main thread was in a class; a GPU that waits for the host waits for its launches."""
    if name == HOST:
        parts = [part for launching in LAUNCHING for part in thread.share_of(launching).top]
        return tuple(sorted(parts, key=lambda part: -part.seconds)[:_MAX_TOP])
    return thread.share_of(name).top if name in {SYNC, DATA, COPIES, COMMUNICATION} else ()


def _position(name: str) -> int:
    """Work of the GPU first, in the order of the trace; then the reasons for its idle time."""
    order = (TENSOR, SIMT, "memory_bound", "other_compute", COMMUNICATION, COPIES, *SAMPLED_CLASSES)
    return order.index(name)
