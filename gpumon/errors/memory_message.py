"""Reads the sizes in PyTorch's out-of-memory message, in every wording since torch 1.13, wrapped or cut off."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from gpumon.core.text_table import table
from gpumon.errors.lazy_pattern import lazy_pattern

_UNITS: Final[dict[str, int]] = {
    "bytes": 1,
    **{f"{prefix}iB": 1 << 10 * power for power, prefix in enumerate("KMGT", 1)},
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)},
}
_SIZE: Final = r"([\d.]{1,16})\s*(bytes|[KMGT]i?B)"


def _pattern(wording: str) -> re.Pattern[str]:
    """The regular expression for a wording, whose spaces may be missing or line ends where lines were joined."""
    return lazy_pattern(wording.replace(" ", r"\s*").replace("SIZE", _SIZE))


_HEADS: Final = (
    _pattern(r"CUDA out of memory\. Tried to allocate SIZE"),
    _pattern(r"Allocation on device \d+ would exceed allowed memory(?s:.{0,120}?)Requested : SIZE"),
)


@cache
def memory_texts(kind: str = "") -> Sequence[tuple[str, str]]:
    """The texts of `memory.txt` of a kind, or all of them, each with its name."""
    rows = (row.partition(": ") for row in table("gpumon.errors", "memory") if row.startswith(kind))
    return [(name.removeprefix(kind).lstrip(), text) for name, _, text in rows]


@cache
def _wordings() -> Sequence[tuple[str, re.Pattern[str]]]:
    return [(name, _pattern(wording)) for name, wording in memory_texts("message")]


_NO_LIMIT: Final = 1 << 60
"""The cudaMallocAsync backend prints 16384 PiB, the largest 64-bit number, if no limit is set."""
_OTHER: Final = _pattern(r"Process (\d+) has SIZE memory in use")
_JSON_NAMES: Final = {"foreign": "other_processes", "unallocated": "reserved_unallocated"}
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
        """The known sizes, under the names of the JSON document."""
        values = {name: getattr(self, name) for name in SIZES}
        return {f"{_JSON_NAMES.get(name, name)}_bytes": value for name, value in values.items() if value is not None}


def read_memory_message(text: str) -> MemoryMessage | None:
    """The sizes in the out-of-memory message at the start of ``text``, or None if there is none."""
    head = next((match for pattern in _HEADS if (match := pattern.match(text)) is not None), None)
    if head is None:
        return None
    body = text[: _end(text, head.end())]
    sizes: dict[str, int | None] = {}
    for name, wording in _wordings():
        if sizes.setdefault(name, None) is None and (match := wording.search(body)) is not None:
            sizes[name] = _bytes(match[1], match[2])
    reserved, allocated = sizes.pop("reserved"), sizes["allocated"]
    if sizes["unallocated"] is None and reserved is not None and allocated is not None:
        sizes["unallocated"] = max(0, reserved - allocated)
    if (sizes["own"] or 0) < (allocated or 0):  # under some drivers, PyTorch reads 0 bytes for its own process
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


def _end(text: str, start: int) -> int:
    """Where the next such message starts, whose sizes belong to a later allocation."""
    starts = (text.find(head, start) for head in ("CUDA out of memory", "Allocation on device"))
    return min((position for position in starts if position > 0), default=len(text))


def _bytes(number: str, unit: str) -> int:
    try:
        return round(float(number) * _UNITS[unit])
    except ValueError:  # two numbers joined where a line was broken
        return 0
