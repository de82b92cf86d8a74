"""The sentences about an out-of-memory file: why the allocation failed, and what else the file shows."""

from collections.abc import Iterator
from typing import Final

from gpumon.core.units import bytes_text, times_text
from gpumon.errors.memory_cause import MemoryCause, cause_sentence, memory_sentence
from gpumon.errors.oom_cause import OomFindings
from gpumon.errors.oom_idle import IdleMemory

_MIN_EXCESS_BYTES: Final = 1 << 30
"""Less memory than this outside of PyTorch, in addition to a context, may be a library of the same process."""


def sentences(findings: OomFindings) -> tuple[str, ...]:
    """The cause with its values, then everything else that the file shows."""
    name = _measured(findings)
    cause = _sentence(name, findings) if name else cause_sentence(findings.cause, findings.message)
    others = (*_of_trend(findings), *_of_file(findings))
    return (cause, *(_sentence(other, findings) for other in others))


def _sentence(name: str, findings: OomFindings) -> str:
    """A sentence of `memory.txt` with all that a file shows."""
    message, idle, trend, statistics = findings.message, findings.idle, findings.trend, findings.file.statistics
    alone = "without others" if findings.excess_outside < _MIN_EXCESS_BYTES else "with others"
    reason = "too_big alone" if findings.fits_alone else f"too_big {alone}"
    of_trend: dict[str, float | str | None] = (
        {}
        if trend is None
        else {
            "seconds": f"{trend.seconds:.0f}",
            "rate": trend.bytes_per_minute,
            "highest": trend.highest_bytes,
            "loading": ", or it was still loading a model that is too big" if trend.only_rises else "",
        }
    )
    return memory_sentence(
        name,
        message,
        outside=findings.outside,
        scattered=idle.scattered,
        pieces=f"{idle.pieces or 0:,}",
        largest=idle.largest,
        places=_places(idle),
        private_reserved=idle.private_reserved,
        idle_share=f", of which {bytes_text(idle.private)} are idle" if findings.file.segments else "",
        waiting=None if statistics is None else statistics.freed_waiting_bytes,
        wanted=findings.wanted,
        failures=times_text(findings.failures - 1),
        rescues=times_text(findings.rescues),
        reason=memory_sentence(reason, message, outside=findings.outside),
        **of_trend,
    )


def _measured(findings: OomFindings) -> str:
    """The sentence about a cause of which the file shows more than the text of the error; empty if it does not."""
    cause, name = findings.cause, f"measured {findings.cause.value}"
    if cause is MemoryCause.FRAGMENTATION:
        return "measured misplaced" if findings.is_misplaced else name if findings.idle.pieces else ""
    if cause is MemoryCause.TOO_BIG and findings.is_impossible:
        return "measured impossible"
    if cause is MemoryCause.LEAK and findings.lacked_only_growth:
        return "measured leak growth"
    is_shown = {
        MemoryCause.CAP: False,
        MemoryCause.UNKNOWN: findings.would_fit,
        MemoryCause.LEAK: findings.trend is not None,
    }
    return name if is_shown.get(cause, True) else ""


def _places(idle: IdleMemory) -> str:
    """The idle memory that the request cannot use, the largest part first."""
    sizes = {
        "private pools, such as those of CUDA graphs": idle.private,
        "pools of other streams": idle.other_streams,
        "segments for blocks of the other kind (small or large)": idle.other_kind,
        "idle segments, which PyTorch cannot free while a CUDA graph is captured": idle.not_given_back,
    }
    parts = sorted(((size, where) for where, size in sizes.items() if size), reverse=True)
    return " and ".join(f"{bytes_text(size)} free in {where}" for size, where in parts)


def _of_trend(findings: OomFindings) -> Iterator[str]:
    """What the last minute shows."""
    if findings.trend is None:
        if findings.cause in {MemoryCause.LEAK, MemoryCause.TOO_BIG} and not findings.is_impossible:
            yield "few samples"
        return
    is_shown = {
        "grows": findings.grows and findings.cause is not MemoryCause.LEAK,
        "may leak": findings.may_leak,
        "jumps": findings.jumps,
        "rescues": findings.rescues > 0,
    }
    yield from (name for name, is_true in is_shown.items() if is_true)


def _of_file(findings: OomFindings) -> Iterator[str]:
    """What is worth knowing, whatever the cause is."""
    file, idle, cause = findings.file, findings.idle, findings.cause
    waiting = (None if file.statistics is None else file.statistics.freed_waiting_bytes) or 0
    relevant = max(1, findings.min_relevant_bytes)
    is_shown = {
        "failures": findings.failures > 1,
        "expandable": cause is MemoryCause.FRAGMENTATION and file.is_expandable,
        "capped": cause is not MemoryCause.CAP and findings.is_capped,
        "private": (idle.private_reserved or 0) >= relevant,
        "waiting": waiting >= relevant,
        "outside": cause is not MemoryCause.OTHER_PROCESSES and findings.excess_outside >= _MIN_EXCESS_BYTES,
        "cut blocks": file.is_cut,
    }
    yield from (name for name, is_true in is_shown.items() if is_true)
