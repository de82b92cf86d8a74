"""The sentences about an out-of-memory file: why the allocation failed, and what else the file shows."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gpumon.core.units import bytes_text, times_text
from gpumon.errors.memory_cause import MemoryCause, cause_sentence
from gpumon.errors.oom_cause import OomFindings
from gpumon.errors.oom_idle import IdleMemory

_MIN_EXCESS_BYTES: Final = 1 << 30
"""Less memory than this outside of PyTorch, in addition to a context, may be a library of the same process."""


def sentences(findings: OomFindings) -> tuple[str, ...]:
    """The cause with its values, then everything else that the file shows."""
    proof = _PROOFS.get(findings.cause)
    text = "" if proof is None else proof(findings)
    cause = text or cause_sentence(findings.cause, findings.message)
    return (cause, *_trend_sentences(findings), *_other_sentences(findings))


def _fragmentation(findings: OomFindings) -> str:
    idle, requested = findings.idle, bytes_text(findings.message.asked)
    if findings.is_misplaced:
        return (
            f"Fragmentation only in appearance: {_elsewhere(idle)}, where this request for {requested} cannot use it."
        )
    if not idle.pieces:
        return ""
    return (
        f"Fragmentation: PyTorch reserves {bytes_text(idle.scattered)} that no tensor uses, but in {idle.pieces:,} "
        f"pieces, the largest of {bytes_text(idle.largest)}. The {requested} requested must be in one piece."
    )


def _other_processes(findings: OomFindings) -> str:
    return (
        f"Other processes: {bytes_text(findings.outside)} are in use outside of this process's PyTorch, of which its "
        "own CUDA context and libraries use 0.3 to 0.8 GiB. Without the rest, the "
        f"{bytes_text(findings.message.asked)} requested would have fit. The file does not show who holds it."
    )


def _leak(findings: OomFindings) -> str:
    if findings.trend is None:
        return ""
    requested, highest = bytes_text(findings.message.asked), bytes_text(findings.trend.highest_bytes)
    proof = (
        f"Without this growth, the {requested} requested would have fit"
        if findings.lacked_only_growth
        else f"Earlier steps that used {highest}, nearly as much as this one needed, succeeded"
    )
    return (
        f"Leak: the minimum memory in tensors grew steadily in the last {findings.trend.seconds:.0f} s, by about "
        f"{bytes_text(findings.trend.bytes_per_minute)} per minute. {proof}. The program keeps references to tensors"
        + (", or it was still loading a model that is too big." if findings.trend.only_rises else ".")
    )


def _too_big(findings: OomFindings) -> str:
    message = findings.message
    requested, total = bytes_text(message.asked), bytes_text(message.total)
    if findings.is_impossible:
        return f"Too big: one request for {requested} exceeds the GPU's {total}."
    alone = "No other process is in the way: the" if findings.excess_outside < _MIN_EXCESS_BYTES else "The"
    reason = (
        f"The GPU's {total} would suffice without the {bytes_text(message.unallocated)} that PyTorch reserves in no "
        f"tensor and the {bytes_text(findings.outside)} outside of PyTorch."
        if findings.fits_alone
        else f"{alone} job needs more than the GPU's {total}."
    )
    return (
        f"Too big: the process requested {requested} in addition to the {bytes_text(message.allocated)} in its "
        f"tensors, and {bytes_text(message.free)} were free. {reason}"
    )


def _unknown(findings: OomFindings) -> str:
    if not findings.would_fit:
        return ""
    return (
        f"A moment after the request for {bytes_text(findings.message.asked)} failed, "
        f"{bytes_text(findings.message.free)} were free: another process, or a library in this one, allocates memory "
        "and frees it again."
    )


_PROOFS: Final[Mapping[MemoryCause, Callable[[OomFindings], str]]] = {
    MemoryCause.FRAGMENTATION: _fragmentation,
    MemoryCause.OTHER_PROCESSES: _other_processes,
    MemoryCause.LEAK: _leak,
    MemoryCause.TOO_BIG: _too_big,
    MemoryCause.UNKNOWN: _unknown,
}
"""The causes about which the file says more than the text of the error; an empty sentence where it does not."""


def _elsewhere(idle: IdleMemory) -> str:
    """The idle memory that the request cannot use, the largest part first."""
    sizes = {
        "private pools, such as those of CUDA graphs": idle.private,
        "pools of other streams": idle.other_streams,
        "segments for blocks of the other kind (small or large)": idle.other_kind,
        "idle segments, which PyTorch cannot free while a CUDA graph is captured": idle.not_given_back,
    }
    parts = sorted(((size, where) for where, size in sizes.items() if size), reverse=True)
    return "PyTorch has " + " and ".join(f"{bytes_text(size)} free in {where}" for size, where in parts)


def _trend_sentences(findings: OomFindings) -> Iterator[str]:
    """What the last minute shows."""
    trend = findings.trend
    if trend is None:
        if findings.cause in {MemoryCause.LEAK, MemoryCause.TOO_BIG} and not findings.is_impossible:
            yield "The probe has too few samples of the last minute to show whether memory grew."
        return
    if findings.grows and findings.cause is not MemoryCause.LEAK:
        yield (
            "In addition, the minimum memory in tensors grew steadily, by about "
            f"{bytes_text(trend.bytes_per_minute)} per minute. If training had already started, the program keeps "
            "references to tensors, and more memory only delays the error."
        )
    if findings.may_leak:
        yield (
            f"In the {trend.seconds:.0f} s before, no growth is visible. Either every step almost fills the GPU or, if "
            "many steps succeeded, a leak is too slow to be visible in a minute."
        )
    if findings.jumps:
        yield (
            f"In the {trend.seconds:.0f} s before, tensors used at most {bytes_text(trend.highest_bytes)}. Then "
            f"{bytes_text(findings.wanted)} were needed: this step is probably larger than those before, or the first."
        )
    if findings.rescues:
        yield (
            f"In the last minute, memory ran short {times_text(findings.rescues)} before, and freeing the cache helped "
            "for a while."
        )


def _other_sentences(findings: OomFindings) -> Iterator[str]:
    """What is worth knowing, whatever the cause is."""
    file, message, idle = findings.file, findings.message, findings.idle
    if findings.failures > 1:
        yield (
            f"The process had run out of memory {times_text(findings.failures - 1)} before and continued, as a search "
            "for the largest batch size does."
        )
    if findings.cause is MemoryCause.FRAGMENTATION and file.is_expandable:
        yield "Expandable segments are already on. They free whole pages only, and these pieces are smaller."
    if findings.cause is not MemoryCause.CAP and findings.is_capped:
        yield f"The process has a memory limit of {bytes_text(message.allowed)}. The driver had more."
    if idle.private_reserved and idle.private_reserved >= findings.min_relevant_bytes:
        share = f", of which {bytes_text(idle.private)} are idle" if file.segments else ""
        yield f"Private pools, such as those of CUDA graphs, hold {bytes_text(idle.private_reserved)}{share}."
    waiting = None if file.statistics is None else file.statistics.freed_waiting_bytes
    if waiting and waiting >= findings.min_relevant_bytes:
        yield f"{bytes_text(waiting)} were freed, but are waiting for a stream that used them (record_stream)."
    if findings.cause is not MemoryCause.OTHER_PROCESSES and findings.excess_outside >= _MIN_EXCESS_BYTES:
        yield (
            f"{bytes_text(findings.outside)} are in use outside of PyTorch, more than a context and its libraries "
            "need: by another process, or by a library with its own allocator."
        )
    if file.is_cut:
        yield "The allocator had more blocks than the file can hold, so the individual pieces are unknown."
