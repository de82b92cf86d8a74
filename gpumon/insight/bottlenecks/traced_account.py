"""Evidence from a trace: exact times of the GPU, alone or together with what was observed of the running process."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final, NamedTuple

from gpumon.core.step_classes import (
    COLLECTION,
    COMMUNICATION,
    COMPUTE,
    COPIES,
    DATA,
    GPU_WORK,
    HOST,
    IDLE,
    MEMORY,
    OTHER_COMPUTE,
    SAMPLED_CLASSES,
    SIMT,
    SYNC,
    TENSOR,
)
from gpumon.insight.bottlenecks.overlays import LAUNCHING
from gpumon.insight.bottlenecks.slowness_evidence import (
    GpuEvidence,
    OperatorUse,
    SlownessEvidence,
    StepAccount,
    StepPart,
    StepShare,
    TraceEvidence,
)
from gpumon.traces.device_time import QUEUED
from gpumon.traces.kinds import is_gc
from gpumon.traces.model import ClassTime, Contribution, Trace
from gpumon.traces.what_if import AS_IT_IS, LEAST, is_elementwise

_NANOSECONDS: Final = 1e9
_MAX_TOP: Final = 5
_MIN_HOST: Final = 0.1
"""Part of the longest path that is the host's, from which on it shows how much longer recording makes calls."""
_MAX_WAITING: Final = 0.5
"""Part of the longest path that is waits for data, up to which the host's part shows that."""
_HOST_RATIOS: Final = (0.6, 0.85)
"""Part of a recorded call that it takes without recording: on H200, 0.55 to 0.72 of launches, and all of other work."""
_MAX_QUEUE_GAP_NS: Final = 5_000
"""The GPU takes up to this time from one queued kernel to the next."""
_OF_TRACE: Final = frozenset({GPU_WORK, HOST, SYNC, IDLE, COPIES, COMMUNICATION})
"""Classes of which only a trace knows how much of the step they are."""
_FREEING: Final = ("cudaFree", "cudaMalloc", "cuMemUnmap", "cuMemRelease", "cuMemCreate", "cuMemMap", "cuMemSetAccess")
_KINDS: Final = {
    DATA: (("_MultiProcessing", "few_workers"), ("_SingleProcess", "main_process"), ("", "loader")),
    SYNC: (("cudaDeviceSynchronize", "synchronize"), ("Memcpy", "copies"), ("aten::", "item_per_step")),
}
"""The finer class of a part, by what its name contains; those of the samples are in `gpumon.stacks.tables`."""
_ORDER: Final = (TENSOR, SIMT, MEMORY, OTHER_COMPUTE, COMMUNICATION, COPIES, *SAMPLED_CLASSES)
"""Work of the GPU first, in the order of the trace; then the reasons for its idle time."""


def traced_evidence(trace: Trace, observed: SlownessEvidence | None = None) -> SlownessEvidence:
    """The evidence of a trace.

    ``observed`` is what was observed of the process meanwhile; None for the trace alone.
    """
    if observed is None:
        mean = fmean(step.end_ns - step.begin_ns for step in trace.steps) / _NANOSECONDS
        empty = StepAccount(trace.step_ns / _NANOSECONDS, mean, len(trace.steps), 0, ())
        gpu = GpuEvidence(name=trace.device or "")
        observed = SlownessEvidence(empty, gpu=gpu, rank=trace.rank, world_size=trace.world_size)
    account = observed.account
    return replace(
        observed,
        account=traced_account(account, trace, observed.thread_account or account),
        trace=_trace_evidence(trace, account.step_seconds, _longer_than_traced(account, trace)),
    )


def traced_account(sampled: StepAccount, trace: Trace, thread: StepAccount) -> StepAccount:
    """The account of a trace, for the median step that was observed, with the lines and the reasons of the samples.

    What an observed step takes longer than the traced one belongs to the classes of the samples that explain it.
    Recording makes each launch longer, so what the median step of the trace takes longer than the observed one is taken
    from its host-bound time, and the rest is scaled to the duration of the latter. What the samples know of the time in
    which the GPU waits for the host is taken from that time.
    ``thread`` is the account of the main thread alone, which has the lines.
    """
    granted = _longer_than_traced(sampled, trace)
    scale, host_scale = _scales(trace, sampled.step_seconds - sum(granted.values()))
    shares = {
        item.name: _share(item, host_scale if item.name in {HOST, COLLECTION} else scale, thread)
        for item in _with_collection(trace.classes)
    }
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
    return replace(sampled, shares=tuple(sorted(kept, key=lambda share: _ORDER.index(share.name))), is_traced=True)


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


def _steps_without(trace: Trace, step_seconds: float, granted: Mapping[str, float]) -> Mapping[str, float]:
    """How long the observed step takes with each change.

    Recording makes calls of the host longer, and not the work of the GPU. So of the longest path, the part of the host
    is scaled such that the step as it is takes as long as observed. No step is shorter than the work of the GPU. Where
    the GPU or the data sets the pace of the step as it is, the scale is unknown, so there is a least and a most.
    """
    if not trace.without:
        return {}
    time, device_ns, _ = trace.without[AS_IT_IS]
    total = max(0.0, step_seconds - sum(granted.values()))
    device = min(1 / _NANOSECONDS, total / device_ns) if device_ns else 1 / _NANOSECONDS
    waiting_ns = time - trace.without.get(DATA, (time,))[0]
    is_scale_known = time - device_ns > _MIN_HOST * time and waiting_ns < _MAX_WAITING * time
    host = (total - device_ns * device) / (time - device_ns) if is_scale_known else _HOST_RATIOS[0] * device

    def scaled(host: float) -> dict[str, float]:
        rest = sum(granted.values())
        return {
            name: max((time - device_ns) * host + device_ns * device, busy_ns * device) + rest - granted.get(name, 0.0)
            for name, (time, device_ns, busy_ns) in trace.without.items()
        }

    most = (
        {} if is_scale_known else {LEAST + name: seconds for name, seconds in scaled(_HOST_RATIOS[1] * device).items()}
    )
    return most | scaled(host)


def _trace_evidence(trace: Trace, step_seconds: float, granted: Mapping[str, float]) -> TraceEvidence:
    """What a trace shows in addition to its account, scaled to the median step that was observed."""
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
        tf32_share=sum(part.time_ns for part in tensor if "tf32" in part.name.lower()) / step,
        elementwise_seconds=scales.device
        * sum(part.time_ns for part in trace.class_time(MEMORY).top if is_elementwise(part.name)),
        compute_seconds=sum(trace.class_time(name).time_ns for name in COMPUTE) / _NANOSECONDS,
        queued_seconds=scales.device
        * sum(
            part.time_ns
            for part in trace.class_time(IDLE).top
            if part.name == QUEUED and part.time_ns <= _MAX_QUEUE_GAP_NS * part.count
        ),
        without=_steps_without(trace, step_seconds, granted),
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
    parts = tuple(
        StepPart(part.name, part.time_ns * scale, part.line, _kind(item.name, part)) for part in item.top[:_MAX_TOP]
    )
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


def _kind(name: str, part: Contribution) -> str:
    """The finer class of a part of a class."""
    return next((kind for text, kind in _KINDS.get(name, ()) if text in part.name), "")


def _with_collection(classes: Sequence[ClassTime]) -> Iterator[ClassTime]:
    """The classes of a trace, with Python's garbage collection apart from the host-bound time that it is part of."""
    for item in classes:
        parts = tuple(part for part in item.top if item.name == HOST and is_gc(part.name))
        collecting = sum(part.time_ns for part in parts)
        if parts:
            yield ClassTime(COLLECTION, collecting, 0, 0, parts)
        rest = tuple(part for part in item.top if part not in parts)
        yield replace(item, time_ns=item.time_ns - collecting, top=rest) if parts else item


def _lines(name: str, thread: StepAccount) -> tuple[StepPart, ...]:
    """The lines at which the main thread was in a class; a GPU that waits for the host waits for its launches."""
    if name == HOST:
        parts = [part for launching in LAUNCHING for part in thread.share_of(launching).top]
        return tuple(sorted(parts, key=lambda part: -part.seconds)[:_MAX_TOP])
    return thread.share_of(name).top if name in {SYNC, DATA, COPIES, COMMUNICATION} else ()
