"""Decides why an allocation failed, from the sizes in its error message."""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from gpumon.core.units import bytes_text
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.memory_message import SIZES, MemoryMessage, memory_texts
from gpumon.errors.signs import has_sign

_LARGE_SHARE: Final = 0.02
"""A smaller share of the GPU is negligible: such a request is one of the many small ones that filled the GPU."""
_SCATTERED_SHARE: Final = 0.05
"""Less unused memory than this share of the GPU is not the cause: the next step would not fit even if it were free."""
_HUGE_SHARE: Final = 0.25
"""A single request for more than this share of the GPU is one tensor that may be avoided."""
_UNKNOWN_TOTAL: Final = 1 << 60
_LIMITED_SHARE: Final = 0.9
"""A process that may use more than this share of the GPU fills it: raising its limit gains nothing."""
_OTHERS_SHARE: Final = 0.05
_OTHERS_BYTES: Final = 1 << 30
"""Other processes that hold less than these bytes or this share are only contexts and displays, not the cause.

The same number of bytes is left for this process's own context and libraries, if its message does not count them."""


_PROGRESS: Final = lazy_pattern(r"(?<![\d/])(?P<done>\d{1,8})/\d{1,8} \[\d\d:\d\d")
"""How tqdm prints complete steps and all steps."""


class MemoryCause(str, Enum):
    """Why an allocation failed. The values are stable, public names."""

    TOO_BIG = "too_big"
    OTHER_PROCESSES = "neighbour"
    FRAGMENTATION = "fragmentation"
    LEAK = "leak"
    CAP = "cap"
    UNKNOWN = "unknown"


def memory_cause(message: MemoryMessage, *, is_first_step: bool = False) -> MemoryCause:
    """Why the allocation failed; unknown if the message was cut off before its sizes, or if they match no cause."""
    cause = _cause_of(message)
    return MemoryCause.TOO_BIG if is_first_step and cause is MemoryCause.LEAK else cause


def is_first_step(lines: Iterable[str]) -> bool:
    """Whether all progress bars in the lines around an error are at 0, except those of loading, in the first epoch."""
    texts = list(lines)
    bars = [(text[: match.start()], int(match["done"])) for text in texts for match in _PROGRESS.finditer(text)]
    counts = [done for label, done in bars if not has_sign("preparation", label)]
    return bool(counts) and not any(counts) and not any(has_sign("later epoch", text) for text in texts)


def _cause_of(message: MemoryMessage) -> MemoryCause:
    total, free = message.total, message.free
    limit = min(_LIMITED_SHARE * (total or _UNKNOWN_TOTAL), message.held + message.asked)
    if message.allowed is not None and message.allowed < limit:
        return MemoryCause.CAP
    if total is None or free is None or message.held > total:
        return MemoryCause.UNKNOWN if total is None or free is None else MemoryCause.TOO_BIG
    unused, foreign = message.unallocated or 0, message.foreign or 0
    own_context = _OTHERS_BYTES if message.own is None and not message.others else 0
    is_crowded = foreign - own_context >= max(_OTHERS_BYTES, _OTHERS_SHARE * total)
    if unused >= max(message.asked / 2, _SCATTERED_SHARE * total) and free + unused >= message.asked:
        return MemoryCause.FRAGMENTATION
    if is_crowded and free + unused + foreign >= message.asked:
        return MemoryCause.OTHER_PROCESSES
    if message.asked >= _LARGE_SHARE * total and message.allocated is not None:
        is_explained = (message.unexplained or 0) < max(_OTHERS_BYTES, message.asked - free)
        return MemoryCause.TOO_BIG if is_explained else MemoryCause.UNKNOWN
    return MemoryCause.LEAK if (message.allocated or 0) >= total / 2 else MemoryCause.UNKNOWN


def value_rows(message: MemoryMessage, **more: int | None) -> Iterator[tuple[str, str]]:
    """The sizes in the message, and others, as the labels of `memory.txt` and texts."""
    sizes = {name: getattr(message, name) for name in SIZES} | more
    kinds = "foreign" if message.own or message.others else "outside"
    labels = dict(memory_texts("label"))
    known = ((kinds if name == "foreign" else name, size) for name, size in sizes.items() if size is not None)
    yield from ((labels[name], bytes_text(size)) for name, size in known)


def memory_sentence(name: str, message: MemoryMessage, **more: float | str | None) -> str:
    """A sentence of `memory.txt` with the sizes of a message, and others."""
    holders = ", ".join(f"process {pid}: {bytes_text(held)}" for pid, held in message.others)
    sizes = {name: getattr(message, name) for name in (*SIZES, "held", "unexplained")} | more
    texts = {name: size if isinstance(size, str) else bytes_text(size) for name, size in sizes.items()}
    others = f"{texts['foreign']} ({holders})" if holders else texts["foreign"]
    return dict(memory_texts())[name].format(**texts, others=others)


def cause_sentence(cause: MemoryCause, message: MemoryMessage) -> str:
    """The reason for this cause, with sizes."""
    if cause is MemoryCause.TOO_BIG:
        return _too_big_sentence(message)
    if cause is MemoryCause.UNKNOWN and message.total is None:
        return memory_sentence("unknown cut", message)
    has_rest = cause is MemoryCause.UNKNOWN and message.unexplained is not None
    return memory_sentence("unknown rest" if has_rest else cause.value, message)


def _too_big_sentence(message: MemoryMessage) -> str:
    if _cause_of(message) is MemoryCause.LEAK:
        return memory_sentence("too_big first_step", message)
    free, foreign, unused = message.free or 0, message.foreign or 0, message.unallocated or 0
    if message.total is not None and message.held > message.total:
        return memory_sentence("too_big swapped", message)
    if free < message.asked <= free + foreign + unused:
        reserves = {"other processes hold": foreign, "this process reserves without using it": unused}
        names = " and the ".join(f"{bytes_text(size)} that {name}" for name, size in reserves.items() if size)
        return memory_sentence("too_big slightly", message, missing=message.asked - free, reserves=names)
    return memory_sentence("too_big", message)


def is_one_tensor(message: MemoryMessage | None) -> bool:
    """Whether the request is so large that it is one tensor, which may be avoided."""
    return message is not None and message.asked >= _HUGE_SHARE * (message.total or _UNKNOWN_TOTAL)
