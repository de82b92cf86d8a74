"""Reads the sizes in PyTorch's out-of-memory message, in every wording since torch 1.13, wrapped or cut off.

It also writes such a message, for a report that has the sizes but not the text.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpumon.errors.lazy_pattern import lazy_pattern

_UNITS: Final[dict[str, int]] = {
    "bytes": 1,
    **{f"{prefix}iB": 1 << 10 * power for power, prefix in enumerate("KMGT", 1)},
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)},
}
_SIZE: Final = r"([\d.]{1,16})\s*(bytes|[KMGT]i?B)"
_HEADS: Final = (
    lazy_pattern(rf"CUDA\s*out\s*of\s*memory\.\s*Tried\s*to\s*allocate\s*{_SIZE}"),
    lazy_pattern(
        rf"Allocation\s*on\s*device\s*\d+\s*would\s*exceed\s*allowed\s*memory(?s:.{{0,120}}?)Requested\s*:\s*{_SIZE}"
    ),
)
_WORDINGS: Final = {
    "total": (
        rf"total\s*capaci?ty\s*of\s*{_SIZE}",  # PyTorch 2.1 misspells "capacity"
        rf"{_SIZE}\s*total\s*capacity",
        rf"Device\s*limit\s*:\s*{_SIZE}",
    ),
    "free": (
        rf"of\s*which\s*{_SIZE}\s*is\s*free",
        rf";\s*{_SIZE}\s*free",
        rf"Free\s*\(according\s*to\s*CUDA\)\s*:\s*{_SIZE}",
    ),
    "own": (rf"this\s*process\s*has\s*{_SIZE}\s*memory\s*in\s*use",),
    "allowed": (rf"{_SIZE}\s*allowed\s*;", rf"user-supplied\s*memory\s*fraction\)\s*:\s*{_SIZE}"),
    "allocated": (
        rf"allocated\s*memory\s*{_SIZE}\s*is\s*allocated\s*by\s*PyTorch",
        rf"{_SIZE}\s*already\s*allocated",
        rf"Currently\s*allocated\s*:\s*{_SIZE}",
    ),
    "private_pools": (rf"{_SIZE}\s*allocated\s*in\s*private\s*pools",),
    "unallocated": (rf"{_SIZE}\s*is\s*reserved\s*by\s*PyTorch\s*but\s*unallocated",),
    "reserved": (rf"{_SIZE}\s*(?:reserved\s*in\s*total\s*by\s*PyTorch|cached)",),
}
_NO_LIMIT: Final = 1 << 60
"""The cudaMallocAsync backend prints 16384 PiB, the largest 64-bit number, if no limit is set."""
_OTHER: Final = lazy_pattern(rf"Process\s*(\d+)\s*has\s*{_SIZE}\s*memory\s*in\s*use")


@dataclass(frozen=True, slots=True)
class MemoryMessage:
    """The sizes in an out-of-memory message, in bytes; None if the message does not contain a size.

    Attributes:
        asked: The requested size.
        total: Total memory of the GPU.
        free: Memory that no process holds.
        own: Memory that the process holds, including its context and libraries.
        allowed: The memory limit that the process has set.
        allocated: Memory in live tensors.
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
        named = {
            "asked_bytes": self.asked,
            "total_bytes": self.total,
            "free_bytes": self.free,
            "other_processes_bytes": self.foreign,
            "own_bytes": self.own,
            "allowed_bytes": self.allowed,
            "allocated_bytes": self.allocated,
            "private_pools_bytes": self.private_pools,
            "reserved_unallocated_bytes": self.unallocated,
        }
        return {name: value for name, value in named.items() if value is not None}


def written_memory_message(message: MemoryMessage, gpu: int, *, is_async: bool = False) -> str:
    """The message as PyTorch prints it, with the sizes that are known, on one line.

    Args:
        message: The sizes.
        gpu: CUDA ordinal of the device.
        is_async: Whether the backend is cudaMallocAsync, which prints a different message.
    """
    asked, total, free, allowed = (
        _written(size) for size in (message.asked, message.total, message.free, message.allowed)
    )
    allocated, unallocated = _written(message.allocated), _written(message.unallocated)
    if is_async:
        sizes = {"Currently allocated": allocated, "Requested": asked, "Device limit": total}
        sizes |= {"Free (according to CUDA)": free}
        known = " ".join(f"{name}: {size}" for name, size in sizes.items() if size)
        return f"Allocation on device {gpu} would exceed allowed memory. (out of memory) {known}"
    parts = (
        f"CUDA out of memory. Tried to allocate {asked}.",
        f"GPU {gpu} has a total capacity of {total} of which {free} is free." if total and free else "",
        f"{allowed} allowed;" if allowed else "",
        f"Of the allocated memory {allocated} is allocated by PyTorch, and {unallocated} is reserved by PyTorch but "
        "unallocated."
        if allocated and unallocated
        else "",
    )
    return " ".join(part for part in parts if part)


def _written(size: int | None) -> str:
    """A size as PyTorch prints it; empty if it is unknown."""
    if size is None:
        return ""
    unit = min(3, max(0, (size.bit_length() - 1) // 10))
    return f"{size} bytes" if unit == 0 else f"{size / (1 << 10 * unit):.2f} {'KMG'[unit - 1]}iB"


def read_memory_message(text: str) -> MemoryMessage | None:
    """The sizes in the out-of-memory message at the start of ``text``, or None if there is none.

    Args:
        text: The message and the text after it; lines may be joined with or without spaces.
    """
    head = next((match for pattern in _HEADS if (match := pattern.match(text)) is not None), None)
    if head is None:
        return None
    body = text[: _end(text, head.end())]
    sizes = {name: _first(body, wordings) for name, wordings in _WORDINGS.items()}
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

    Args:
        listed: The PIDs of the listed processes, each with the memory that it holds.
        sizes: The other sizes in the message.
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
    heads = ("CUDA out of memory", "Allocation on device")
    starts = [position for head in heads if (position := text.find(head, start)) > 0]
    return min(starts, default=len(text))


def _first(text: str, wordings: Sequence[str]) -> int | None:
    match = next((match for wording in wordings if (match := re.search(wording, text)) is not None), None)
    return None if match is None else _bytes(match[1], match[2])


def _bytes(number: str, unit: str) -> int:
    try:
        return round(float(number) * _UNITS[unit])
    except ValueError:  # two numbers joined where a line was broken
        return 0
