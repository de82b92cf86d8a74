"""Reads the sizes in PyTorch's out-of-memory message, and decides why an allocation failed.

The message is read in every wording since torch 1.13, wrapped or cut off.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Final

from gpumon.core.text_table import table
from gpumon.core.units import bytes_text
from gpumon.errors.entry import Values
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.signs import has_sign

_UNITS: Final[dict[str, int]] = {
    "bytes": 1,
    **{f"{prefix}iB": 1 << 10 * power for power, prefix in enumerate("KMGT", 1)},
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)},
}
_SIZE: Final = r"([\d.]{1,16})\s*(bytes|[KMGT]i?B)"
_LARGE_SHARE: Final = 0.02
"""A smaller share of the GPU is negligible: such a request is one of the many small ones that filled the GPU."""
_SCATTERED_SHARE: Final = 0.05
"""Less unused memory than this share of the GPU is not the cause: the next step would not fit even if it were free."""
_HUGE_SHARE: Final = 0.25
"""A single request for more than this share of the GPU is one tensor that may be avoided."""
_NO_LIMIT: Final = 1 << 60
"""More than any GPU has. The cudaMallocAsync backend prints 16384 PiB, the largest 64-bit number, without a limit."""
_LIMITED_SHARE: Final = 0.9
"""A process that may use more than this share of the GPU fills it: raising its limit gains nothing."""
_OTHERS_SHARE: Final = 0.05
_OTHERS_BYTES: Final = 1 << 30
"""Other processes that hold less than these bytes or this share are only contexts and displays, not the cause.

The same number of bytes is left for this process's own context and libraries, if its message does not count them."""
_PROGRESS: Final = lazy_pattern(r"(?<![\d/])(?P<done>\d{1,8})/\d{1,8} \[\d\d:\d\d")
"""How tqdm prints complete steps and all steps."""


def _pattern(wording: str) -> re.Pattern[str]:
    """The regular expression for a wording, whose spaces may be missing or line ends where lines were joined."""
    return lazy_pattern(wording.replace(" ", r"\s*").replace("SIZE", _SIZE))


_HEADS: Final = (
    _pattern(r"CUDA out of memory\. Tried to allocate SIZE"),
    _pattern(r"Allocation on device \d+ would exceed allowed memory(?s:.{0,120}?)Requested : SIZE"),
)
_START: Final = lazy_pattern(r"CUDA out of memory|Allocation on device")


@cache
def memory_texts(kind: str = "") -> Sequence[tuple[str, str]]:
    """The texts of `memory.txt` of a kind, or all of them, each with its name."""
    rows = (row.partition(": ") for row in table("gpumon.errors", "memory") if row.startswith(kind))
    return [(name.removeprefix(kind).lstrip(), text) for name, _, text in rows]


@cache
def _wordings() -> Sequence[tuple[str, re.Pattern[str]]]:
    return [(name, _pattern(wording)) for name, wording in memory_texts("message")]


_OTHER: Final = _pattern(r"Process (\d+) has SIZE memory in use")
SIZES: Final = ("asked", "total", "free", "foreign", "own", "allowed", "allocated", "private_pools", "unallocated")


@dataclass(frozen=True, slots=True)
class MemoryMessage:
    """The sizes in an out-of-memory message, in bytes; None if the message does not contain a size.

    Attributes:
        own: Memory that the process holds, including its context and libraries.
        allowed: The memory limit that the process has set.
        private_pools: The part of it that belongs to CUDA graphs.
        unallocated: Memory that the allocator has reserved and that no tensor uses.
        others: PIDs of other processes, each with the memory that it holds.
    """

    asked: int
    total: int | None = None
    free: int | None = None
    own: int | None = None
    allowed: int | None = None
    allocated: int | None = None
    private_pools: int | None = None
    unallocated: int | None = None
    others: tuple[tuple[int, int], ...] = ()

    @property
    def held(self) -> int:
        """Memory that the allocator has reserved from the driver."""
        return (self.allocated or 0) + (self.unallocated or 0)

    @property
    def unexplained(self) -> int | None:
        """Memory in use of which the message does not say whose it is; None if it says so for all of it."""
        is_known = self.own is not None or self.unallocated is not None
        if is_known or self.total is None or self.free is None or self.allocated is None:
            return None
        return max(0, self.total - self.free - self.allocated - sum(held for _, held in self.others))

    @property
    def foreign(self) -> int | None:
        """Memory of other processes: the unexplained rest of the total, or the sum over the listed ones if smaller."""
        listed = sum(held for _, held in self.others)
        own_is_known = self.own is not None or (self.allocated is not None and self.unallocated is not None)
        if self.total is None or self.free is None or not own_is_known:
            return listed or None
        rest = max(0, self.total - self.free - (self.held if self.own is None else self.own))
        return min(listed, rest) if listed else rest

    def sizes(self) -> dict[str, int]:
        """The known sizes, under the names of the JSON document; who holds the rest is known only of the own memory."""
        rest = "other_processes" if self.own or self.others else "outside_allocator"
        names = {"unallocated": "reserved_unallocated", "foreign": rest}
        values = {names.get(name, name): getattr(self, name) for name in SIZES}
        return {f"{name}_bytes": value for name, value in values.items() if value is not None}


def read_memory_message(text: str) -> MemoryMessage | None:
    """The sizes in the out-of-memory message at the start of ``text``, or None if there is none."""
    head = next((match for pattern in _HEADS if (match := pattern.match(text)) is not None), None)
    if head is None:
        return None
    following = _START.search(text, head.end())  # of a message about a later allocation
    body = text if following is None else text[: following.start()]
    sizes: dict[str, int | None] = {}
    for name, wording in _wordings():
        if sizes.setdefault(name, None) is None and (match := wording.search(body)) is not None:
            sizes[name] = _bytes(match[1], match[2])
    reserved, allocated = sizes.pop("reserved"), sizes["allocated"]
    if sizes["unallocated"] is None and reserved is not None and allocated is not None:
        sizes["unallocated"] = max(0, reserved - allocated)
    if not 0 < (sizes["own"] or 0) < _NO_LIMIT:  # drivers of Windows say 0 bytes, or all bits
        sizes["own"] = None
    if (sizes["allowed"] or 0) >= _NO_LIMIT:
        sizes["allowed"] = None
    listed = tuple((int(pid), _bytes(number, unit)) for pid, number, unit in _OTHER.findall(body))
    own = None if sizes["own"] is not None else _own_entry(listed, sizes)
    sizes["own"] = sizes["own"] if own is None else own[1]
    others = tuple(entry for entry in listed if entry is not own)
    return MemoryMessage(_bytes(head[1], head[2]), others=others, **sizes)


def _own_entry(listed: Sequence[tuple[int, int]], sizes: Mapping[str, int | None]) -> tuple[int, int] | None:
    """The entry of the process itself among the listed processes, or None if there is none.

    In a container, the driver reports another PID for the process, so that PyTorch does not recognize it. Its entry has
    at least what PyTorch reserves; of several such entries, it is the smallest one, because the rest is its context.
    The entries of other processes alone, with the memory of this process and the free memory, cannot exceed the GPU.
    """
    allocated, unallocated, total = sizes["allocated"], sizes["unallocated"], sizes["total"]
    if allocated is None or unallocated is None:
        return None
    reserved = allocated + unallocated
    if total is not None and sum(held for _, held in listed) + reserved + (sizes["free"] or 0) <= total:
        return None
    return min((entry for entry in listed if entry[1] >= reserved), key=lambda entry: entry[1], default=None)


def _bytes(number: str, unit: str) -> int:
    try:
        return round(float(number) * _UNITS[unit])
    except ValueError:  # two numbers joined where a line was broken
        return 0


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
    total, free = message.total, message.free
    limit = min(_LIMITED_SHARE * (total or _NO_LIMIT), message.held + message.asked)
    if message.allowed is not None and message.allowed < limit and message.asked <= (total or _NO_LIMIT):
        is_scattered = message.asked <= (message.unallocated or 0) and message.asked >= _LARGE_SHARE * message.allowed
        return MemoryCause.FRAGMENTATION if is_scattered else MemoryCause.CAP
    if total is None or free is None or message.held > total:
        return MemoryCause.UNKNOWN if total is None or free is None else MemoryCause.TOO_BIG
    unused, foreign = message.unallocated or 0, message.foreign or 0
    own_context = _OTHERS_BYTES if message.own is None and not message.others else 0
    is_crowded = foreign - own_context >= max(_OTHERS_BYTES, _OTHERS_SHARE * total)
    if unused >= max(message.asked, _SCATTERED_SHARE * total):
        return MemoryCause.FRAGMENTATION
    if is_crowded and free + unused + foreign >= message.asked:
        return MemoryCause.OTHER_PROCESSES
    if message.asked >= _LARGE_SHARE * total and message.allocated is not None:
        is_explained = (message.unexplained or 0) < max(_OTHERS_BYTES, message.asked - free)
        return MemoryCause.TOO_BIG if is_explained else MemoryCause.UNKNOWN
    full = MemoryCause.TOO_BIG if is_first_step else MemoryCause.LEAK
    return full if (message.allocated or 0) >= total / 2 else MemoryCause.UNKNOWN


def is_first_step(lines: Iterable[str]) -> bool:
    """Whether all progress bars in the lines around an error are at 0, except those of loading, in the first epoch."""
    texts = list(lines)
    bars = [(text[: match.start()], int(match["done"])) for text in texts for match in _PROGRESS.finditer(text)]
    counts = [done for label, done in bars if not has_sign("preparation", label)]
    return bool(counts) and not any(counts) and not any(has_sign("later epoch", text) for text in texts)


def size_rows(values: Values) -> list[tuple[str, str]]:
    """The sizes among the values of an error, with the labels of `memory.txt`."""
    labels = dict(memory_texts("label"))
    return [(labels[name], bytes_text(int(size))) for name, size in values.items() if name in labels]


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
    if memory_cause(message) is MemoryCause.LEAK:
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
    return message is not None and message.asked >= _HUGE_SHARE * (message.total or _NO_LIMIT)
