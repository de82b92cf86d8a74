"""The figures in PyTorch's out-of-memory text, in all its wordings from torch 1.13 on, wrapped or cut off."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_UNITS: Final = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE: Final = r"([\d.]{1,16})\s*(bytes|[KMGT]iB)"
_HEADS: Final = (
    re.compile(rf"CUDA\s*out\s*of\s*memory\.\s*Tried\s*to\s*allocate\s*{_SIZE}"),
    re.compile(
        rf"Allocation\s*on\s*device\s*\d+\s*would\s*exceed\s*allowed\s*memory(?s:.{{0,120}}?)Requested\s*:\s*{_SIZE}"
    ),
)
_FIGURES: Final = {
    "total": (
        rf"total\s*capaci?ty\s*of\s*{_SIZE}",  # PyTorch 2.1 left a letter out
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
_OTHER: Final = re.compile(rf"Process\s*(\d+)\s*has\s*{_SIZE}\s*memory\s*in\s*use")


@dataclass(frozen=True, slots=True)
class MemoryMessage:
    """The figures of an out-of-memory text, in bytes; None where it does not tell.

    Attributes:
        asked: What was asked for.
        total: Size of the GPU's memory.
        free: What nobody held.
        own: What the process holds, its context and libraries included.
        allowed: The cap that the process has set itself.
        allocated: What live tensors hold.
        private_pools: How much of that belongs to CUDA graphs.
        unallocated: What the allocator keeps but no tensor uses.
        others: What other processes hold, by PID.
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
        """What the allocator has taken from the driver."""
        return (self.allocated or 0) + (self.unallocated or 0)

    @property
    def foreign(self) -> int | None:
        """What other processes hold: by the rest of the sum, or by what is told of each where that is less.

        In a container the driver's PID of this very process is unknown to it, so that it stands among the others.
        """
        told = sum(held for _, held in self.others)
        if self.total is None or self.free is None or (self.own is None and self.allocated is None):
            return told or None
        rest = max(0, self.total - self.free - (self.held if self.own is None else self.own))
        return min(told, rest) if told else rest

    def figures(self) -> dict[str, int]:
        """What is known, under the names of the JSON document."""
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


def read_memory_message(text: str) -> MemoryMessage | None:
    """The figures of the out-of-memory text that ``text`` begins with, or None if it is no such text.

    Args:
        text: The message and what came after it; lines may be joined with or without spaces.
    """
    head = next((found for pattern in _HEADS if (found := pattern.match(text)) is not None), None)
    if head is None:
        return None
    body = text[: _end(text, head.end())]
    figures = {name: _first(body, wordings) for name, wordings in _FIGURES.items()}
    reserved, allocated = figures.pop("reserved"), figures["allocated"]
    if figures["unallocated"] is None and reserved is not None and allocated is not None:
        figures["unallocated"] = max(0, reserved - allocated)
    others = tuple((int(pid), _bytes(number, unit)) for pid, number, unit in _OTHER.findall(body))
    return MemoryMessage(_bytes(head[1], head[2]), others=others, **figures)


def _end(text: str, start: int) -> int:
    """Where the next such message begins, whose figures are another moment's."""
    starts = [place for head in ("CUDA out of memory", "Allocation on device") if (place := text.find(head, start)) > 0]
    return min(starts, default=len(text))


def _first(text: str, wordings: Sequence[str]) -> int | None:
    found = next((found for each in wordings if (found := re.search(each, text)) is not None), None)
    return None if found is None else _bytes(found[1], found[2])


def _bytes(number: str, unit: str) -> int:
    try:
        return round(float(number) * _UNITS[unit])
    except ValueError:  # two numbers run together where a line was broken
        return 0
