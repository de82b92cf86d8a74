"""A GPU's memory from zero to its total: who holds which part of it, what that part is and what would free it.

The driver says what each process holds, PyTorch says what it has reserved of that and for what. What nobody owns is a
remainder, and is shown as one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gpumon.core.allocator import AllocatorStatistics, ProbeState
from gpumon.core.model import Device, DeviceState, Switch
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.units import age_text, bytes_text
from gpumon.operations.probed import Owner, owners_of
from gpumon.probe.news import Probe

_MUCH_BYTES: Final = 256 << 20
"""By so much may two readings of different moments differ without a word."""


class PartKind(str, Enum):
    """What a part of the memory is. Stable, public names."""

    DRIVER_RESERVED = "driver_reserved"
    CONTEXT = "context"
    ALLOCATED = "allocated"
    FREED_WAITING = "freed_waiting"
    RELEASABLE = "releasable"
    FRAGMENTED = "fragmented"
    CACHED = "cached"
    UNPROBED = "unprobed"
    UNOWNED = "unowned"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a GPU's memory.

    Attributes:
        kind: What it is.
        bytes: Its size; a process keeps all its parts, some of them empty, so that rows stay where they are.
        pid: Whose it is, as gpumon sees it; None for a part that is no process's.
        label: What it is called.
        meaning: What it is, in a sentence.
        remedy: What would free it, in a sentence; empty where nothing does.
    """

    kind: PartKind
    bytes: int
    pid: int | None
    label: str
    meaning: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The memory of a GPU.

    Attributes:
        total_bytes: All of it, the driver's own share included.
        parts: From zero to the total, which is exactly their sum: the driver's share, each process's parts by PID,
            what nobody owns, what is free. Empty if it cannot be drawn.
        problem: Why it cannot be drawn, if so.
        notes: What is to be known beside it, in sentences.
    """

    total_bytes: int
    parts: tuple[Part, ...] = ()
    problem: Problem | None = None
    notes: tuple[str, ...] = ()


_WORDS: Final[Mapping[PartKind, tuple[str, str, str]]] = {
    PartKind.DRIVER_RESERVED: (
        "driver",
        "Kept by the driver and the firmware for themselves; no program can have it.",
        "",
    ),
    PartKind.CONTEXT: (
        "context and libraries",
        "Held beside PyTorch's allocator: the CUDA context, loaded kernels, and what NCCL and other libraries take.",
        "It goes when the process ends; fewer NCCL communicators and libraries make it smaller.",
    ),
    PartKind.ALLOCATED: (
        "tensors",
        "Held by live tensors: parameters, gradients, optimizer states, activations.",
        "Smaller batches, activation checkpointing, smaller types, and no references to what is done with.",
    ),
    PartKind.FREED_WAITING: (
        "freed, awaited",
        "Freed by the program, and kept until a stream that may still use it is done.",
        "It goes by itself when those streams have caught up.",
    ),
    PartKind.RELEASABLE: (
        "cached",
        "Kept by PyTorch for its next tensors; nothing is in it. To this process it is as good as free.",
        "torch.cuda.empty_cache() gives it back to the others.",
    ),
    PartKind.FRAGMENTED: (
        "fragmented",
        "Free, but in segments of which another part is in use: only tensors that fit the holes can have it.",
        "empty_cache() leaves it. Set before the start, PYTORCH_ALLOC_CONF=expandable_segments:True avoids most of it.",
    ),
    PartKind.CACHED: (
        "cached",
        "Kept by PyTorch and in no tensor; this allocator does not tell how much of it could go back.",
        "torch.cuda.empty_cache() gives back what can be given.",
    ),
    PartKind.UNPROBED: (
        "process",
        "A process without a probe: the driver tells how much it holds, and nobody tells for what.",
        "Start it with gpumon watch, or use gpumon attach on Python 3.14, to see inside.",
    ),
    PartKind.UNOWNED: (
        "nobody's",
        "In use, and of none of the processes listed: the driver's bookkeeping, or one that ends or cannot be seen.",
        "",
    ),
    PartKind.FREE: ("free", "Free for every process.", ""),
}
_SPLIT: Final = Problem(
    ProblemCode.NOT_SUPPORTED, "This GPU is split (MIG): its memory belongs to its instances.", "Look at those."
)
_LOST: Final = Problem(ProblemCode.GPU_LOST, "The GPU is lost; nobody knows its memory.", "Restart the machine.")
_UNREAD: Final = Problem(ProblemCode.NOT_READ, "The driver did not tell how much memory the GPU has and uses.")
_CONTRADICTION: Final = Problem(
    ProblemCode.INVALID_VALUE, "The driver says that processes hold more memory than the GPU has."
)


def waterfall(device: Device, probes: Mapping[int, Probe]) -> Waterfall:
    """Where the memory of a GPU is.

    Args:
        device: The GPU, or an instance of one.
        probes: All that are known, by PID as gpumon sees it.
    """
    total = int(device.get("memory_total_bytes") or 0)
    used = device.get("memory_used_bytes")
    if (problem := _why_not(device)) is not None or used is None:
        return Waterfall(total, problem=problem or _UNREAD)
    driver = int(device.get("memory_reserved_bytes") or 0)
    told_free = device.get("memory_free_bytes")
    free = max(0, int(total - used - driver if told_free is None else told_free))
    owners, found = owners_of(device, probes)
    notes = [*_notes_of_device(device), *found]
    room = total - driver - sum(owner.memory_bytes or 0 for owner in owners)
    if room < 0:
        return Waterfall(total, problem=_CONTRADICTION)
    parts = [_part(PartKind.DRIVER_RESERVED, driver)] if driver else []
    for owner in owners:
        room, of_owner = _parts_of_owner(owner, room, notes)
        parts += of_owner
    free = min(free, room)
    parts += [_part(PartKind.UNOWNED, room - free), _part(PartKind.FREE, free)]
    return Waterfall(total, tuple(parts), notes=tuple(notes))


def _why_not(device: Device) -> Problem | None:
    """Why a device's memory cannot be told apart, if so."""
    if device.instance is None and device.mig_mode is Switch.ENABLED:
        return _SPLIT
    for metric in ("memory_total_bytes", "memory_used_bytes"):
        if device.get(metric) is None:
            return device.problems.get(metric) or (_LOST if device.state is DeviceState.LOST else _UNREAD)
    return _LOST if device.state is DeviceState.LOST else None


def _notes_of_device(device: Device) -> Iterator[str]:
    if device.state is DeviceState.UNRESPONSIVE:
        yield f"The driver does not answer for this GPU: these figures are {age_text(device.age_seconds)} old."
    elif device.is_stale("memory_used_bytes"):
        yield str(device.problems["memory_used_bytes"])
    if device.get("memory_reserved_bytes") is None:
        why = device.problems.get("memory_reserved_bytes")
        yield f"What the driver keeps for itself is among what nobody owns. {'' if why is None else why}".rstrip()
    if device.processes is None:
        why = device.problems.get("processes")
        yield f"The processes are not known: what they hold is nobody's here. {'' if why is None else why}".rstrip()
    elif device.is_stale("processes"):
        yield f"What processes hold is not of this moment. {device.problems['processes']}"


def _parts_of_owner(owner: Owner, room: int, notes: list[str]) -> tuple[int, list[Part]]:
    """The parts of a process, and what is left of ``room``, the memory that no process was found to hold so far."""
    held, statistics = owner.memory_bytes, owner.statistics
    excess = 0 if statistics is None else max(0, statistics.reserved_bytes - (held or 0))
    if statistics is not None and excess <= room:
        if held is not None and excess > _MUCH_BYTES:
            notes.append(
                f"PyTorch in process {owner.pid} reserves {bytes_text(excess)} more than the driver says that it "
                "holds: the two were read at different moments."
            )
        return room - excess, list(_parts_of_allocator(owner, statistics))
    if statistics is not None:
        notes.append(
            f"PyTorch in process {owner.pid} says that it reserves {bytes_text(statistics.reserved_bytes)}, which "
            "this GPU cannot have given to it; the driver's figure is shown."
        )
    if held is None:
        notes.append(f"The driver does not tell what process {owner.pid} holds; it is among what nobody owns.")
        return room, []
    return room, [_whole_process(owner, held)]


def _parts_of_allocator(owner: Owner, told: AllocatorStatistics) -> Iterator[Part]:
    """What a process holds, by its own books; their figures are fitted into what it has reserved."""
    pid, reserved = owner.pid, told.reserved_bytes
    if owner.memory_bytes is not None:
        yield _part(PartKind.CONTEXT, max(0, owner.memory_bytes - reserved), pid)
    allocated = min(told.allocated_bytes, reserved)
    waiting = min(told.freed_waiting_bytes or 0, reserved - allocated)
    yield _part(PartKind.ALLOCATED, allocated, pid)
    yield _part(PartKind.FREED_WAITING, waiting, pid)
    cached = reserved - allocated - waiting
    if told.releasable_bytes is None or told.inactive_split_bytes is None or _grows(owner):
        yield _cached(PartKind.CACHED, cached, pid, told)
        return
    fragmented = min(told.inactive_split_bytes, cached)
    yield _cached(PartKind.RELEASABLE, cached - fragmented, pid, told)
    yield _part(PartKind.FRAGMENTED, fragmented, pid)


def _grows(owner: Owner) -> bool:
    """Whether the allocator uses expandable segments, for which it keeps no books of what is split."""
    return owner.probe is not None and owner.probe.reading is not None and bool(owner.probe.reading.expandable_segments)


def _cached(kind: PartKind, size: int, pid: int, told: AllocatorStatistics) -> Part:
    label, meaning, remedy = _WORDS[kind]
    if told.private_pools_bytes and size:
        kept = bytes_text(min(told.private_pools_bytes, size))
        remedy += f" Up to {kept} of it belongs to CUDA graphs or pools of the program, and stays as long as they do."
    return Part(kind, size, pid, label, meaning, remedy)


def _whole_process(owner: Owner, held: int) -> Part:
    """A process of which only the driver speaks; one with a probe says why PyTorch does not."""
    kind = PartKind.UNPROBED
    label, meaning, remedy = _WORDS[kind]
    if owner.probe is not None:
        meaning, remedy = f"PyTorch in it tells nothing of this GPU: {_silence(owner.probe)}.", ""
    return Part(kind, held, owner.pid, label, meaning, remedy)


def _silence(probe: Probe) -> str:
    reading = probe.reading
    if reading is None:
        return "its probe has told nothing yet"
    if reading.state is ProbeState.FAILED:
        return "its probe cannot read it" if reading.problem is None else reading.problem.reason.rstrip(".")
    return _SILENCES[reading.state]


_SILENCES: Final[Mapping[ProbeState, str]] = {
    ProbeState.WAITING_FOR_TORCH: "it has not imported PyTorch",
    ProbeState.CPU_ONLY: "its PyTorch was built without CUDA",
    ProbeState.WAITING_FOR_CUDA: "it has made no CUDA context",
    ProbeState.LIVE: "it holds memory of it past PyTorch",
}


def _part(kind: PartKind, size: int, pid: int | None = None) -> Part:
    return Part(kind, size, pid, *_WORDS[kind])
