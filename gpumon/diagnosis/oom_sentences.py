"""What a file of a probe proves, in sentences: why the allocation failed, and what else there is to see."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gpumon.core.units import bytes_text
from gpumon.diagnosis.memory_cause import MemoryCause, cause_sentence
from gpumon.diagnosis.oom_cause import OomFindings
from gpumon.diagnosis.oom_idle import IdleMemory

_OTHERS_BYTES: Final = 1 << 30
"""Less than this beside a context may be one of its libraries."""


def sentences(found: OomFindings) -> tuple[str, ...]:
    """Why it is this cause, in figures, and what else the file shows."""
    proof = _PROOFS.get(found.cause)
    told = "" if proof is None else proof(found)
    return (told or cause_sentence(found.cause, found.message), *_of_the_minute(found), *_besides(found))


def _fragmentation(found: OomFindings) -> str:
    idle, asked = found.idle, bytes_text(found.message.asked)
    if found.is_misplaced:
        return f"Fragmentation only in appearance: {_elsewhere(idle)}, where this request for {asked} may not take it."
    if not idle.pieces:
        return ""
    return (
        f"Fragmentation: PyTorch keeps {bytes_text(idle.scattered)} that no tensor uses, but in {idle.pieces:,} "
        f"pieces, the largest of {bytes_text(idle.largest)}; the {asked} asked for must be in one."
    )


def _neighbour(found: OomFindings) -> str:
    return (
        f"Neighbour: {bytes_text(found.outside)} are held outside of this process's PyTorch, of which its own context "
        f"and libraries are 0.3 to 0.8 GiB; without the rest the {bytes_text(found.message.asked)} asked for would "
        "have fit. The file cannot tell whose that is."
    )


def _leak(found: OomFindings) -> str:
    if found.trend is None:
        return ""
    asked, highest = bytes_text(found.message.asked), bytes_text(found.trend.highest_bytes)
    proof = (
        f"without that the {asked} asked for would have fit"
        if found.lacked_only_growth
        else f"steps that held {highest}, nearly what this one wanted, had fit before"
    )
    return (
        f"Leak: what tensors hold at the least grew steadily in the last {found.trend.seconds:.0f} s, by about "
        f"{bytes_text(found.trend.bytes_a_minute)} a minute; {proof}. Something keeps tensors alive."
    )


def _too_big(found: OomFindings) -> str:
    message = found.message
    asked, total = bytes_text(message.asked), bytes_text(message.total)
    if found.is_impossible:
        return f"Too big: it asked for {asked} at once, and the whole GPU has {total}."
    alone = "Nobody else is in the way: the" if found.others < _OTHERS_BYTES else "The"
    why = (
        f"The GPU's {total} would hold that: {bytes_text(message.unallocated)} that PyTorch keeps in no tensor and "
        f"{bytes_text(found.outside)} outside of it make the difference."
        if found.fits_alone
        else f"{alone} job needs more than the GPU's {total}."
    )
    return (
        f"Too big: it asked for {asked} beside the {bytes_text(message.allocated)} that its tensors held already, and "
        f"{bytes_text(message.free)} were free. {why}"
    )


def _unknown(found: OomFindings) -> str:
    if not found.would_fit:
        return ""
    return (
        f"A moment after the {bytes_text(found.message.asked)} asked for could not be had, "
        f"{bytes_text(found.message.free)} were free: another process, or a library in this one, takes memory and "
        "gives it back."
    )


_PROOFS: Final[Mapping[MemoryCause, Callable[[OomFindings], str]]] = {
    MemoryCause.FRAGMENTATION: _fragmentation,
    MemoryCause.NEIGHBOUR: _neighbour,
    MemoryCause.LEAK: _leak,
    MemoryCause.TOO_BIG: _too_big,
    MemoryCause.UNKNOWN: _unknown,
}
"""Who tells it better than the text of the error does; empty where the file has no more than that."""


def _elsewhere(idle: IdleMemory) -> str:
    """What lies idle in other places, the largest part first."""
    places = {
        "private pools, those of CUDA graphs": idle.private,
        "pools of other streams": idle.other_streams,
        "segments for blocks of the other kind, small or large": idle.other_kind,
        "idle segments, which it gives back before it fails, but not while a CUDA graph is captured": (
            idle.not_given_back
        ),
    }
    parts = sorted(((held, place) for place, held in places.items() if held), reverse=True)
    return "PyTorch keeps " + " and ".join(f"{bytes_text(held)} free in {place}" for held, place in parts)


def _of_the_minute(found: OomFindings) -> Iterator[str]:
    """How it came to this, as far as the last minute shows."""
    trend = found.trend
    if trend is None:
        if found.cause in {MemoryCause.LEAK, MemoryCause.TOO_BIG} and not found.is_impossible:
            yield "The probe has too few readings of the minute before to tell whether memory grew."
        return
    if found.grows and found.cause is not MemoryCause.LEAK:
        yield (
            f"Besides, what tensors hold at the least grew steadily, by about {bytes_text(trend.bytes_a_minute)} a "
            "minute: if the training was under way, something keeps tensors alive, and more room only puts the end off."
        )
    if found.may_leak:
        yield (
            f"In the {trend.seconds:.0f} s that were watched before it was not seen to grow: either each step all but "
            "fills the GPU, or, if many steps went well, a leak is too slow to be seen in a minute."
        )
    if found.jumps:
        yield (
            f"In the {trend.seconds:.0f} s that were watched before, tensors were seen to hold "
            f"{bytes_text(trend.highest_bytes)} at most; then {bytes_text(found.wanted)} were wanted: it seems that "
            "this step is larger than those before, or the first."
        )
    if found.rescues:
        yield (
            f"In the last minute memory ran short {times_text(found.rescues)} before, and giving back the cache helped "
            "for a while."
        )


def times_text(count: int) -> str:
    """How often, in words."""
    return "once" if count == 1 else f"{count} times"


def _besides(found: OomFindings) -> Iterator[str]:
    """What is worth telling whatever the cause is."""
    file, message, idle = found.file, found.message, found.idle
    if found.failures > 1:
        yield (
            f"The process had run out of memory {times_text(found.failures - 1)} before and gone on, as a search for "
            "the largest batch does."
        )
    if found.cause is MemoryCause.FRAGMENTATION and file.is_expandable:
        yield "Expandable segments are on already: they mend what is idle in whole pages, and these pieces are smaller."
    if found.cause is not MemoryCause.CAP and found.is_capped:
        yield f"The process has limited itself to {bytes_text(message.allowed)}: the driver had more."
    if idle.private_reserved and idle.private_reserved >= found.matters:
        of_it = f", of which {bytes_text(idle.private)} are idle" if file.segments else ""
        yield f"Private pools, those of CUDA graphs, keep {bytes_text(idle.private_reserved)} for themselves{of_it}."
    waiting = None if file.statistics is None else file.statistics.freed_waiting_bytes
    if waiting and waiting >= found.matters:
        yield f"{bytes_text(waiting)} were freed and still wait for a stream that used them (record_stream)."
    if found.cause is not MemoryCause.NEIGHBOUR and found.others >= _OTHERS_BYTES:
        yield (
            f"{bytes_text(found.outside)} are held outside of PyTorch, more than a context and its libraries take: "
            "another process, or a library with memory of its own."
        )
    if file.is_cut:
        yield "The allocator had more blocks than the file can hold, so the pieces could not be looked at one by one."
