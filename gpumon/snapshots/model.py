"""A snapshot as gpumon keeps it, on both sides of the pipe: small, whatever the size of the file."""

from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from gpumon.core.allocator import BlockState, Segment, SegmentBlock
from gpumon.core.timeline import Summary


class SnapshotFrame(NamedTuple):
    """A stack frame; without a file its name explains why there is no frame."""

    name: str
    file: str = ""
    line: int = 0


class Amount(NamedTuple):
    """Bytes and the number of blocks that hold them."""

    bytes: int = 0
    blocks: int = 0

    def __add__(self, other: object) -> "Amount":
        if not isinstance(other, Amount):
            return NotImplemented
        return Amount(self.bytes + other.bytes, self.blocks + other.blocks)


NO_AMOUNT = Amount()


class StackUse(NamedTuple):
    """What one stack allocated.

    Attributes:
        stack: The number of the stack.
        now: What is still allocated when the snapshot is taken.
        peak: What was allocated at the peak.
        ever: What was allocated in the entire history.
    """

    stack: int
    now: Amount = NO_AMOUNT
    peak: Amount = NO_AMOUNT
    ever: Amount = NO_AMOUNT


class OomTraceEvent(NamedTuple):
    """A failed allocation in the history.

    Attributes:
        seconds: Time since the first event.
        event: The number of the event.
        bytes: The requested size.
        free_bytes: Free memory of the device.
        stack: The number of the stack that requested it.
    """

    seconds: float
    event: int
    bytes: int
    free_bytes: int
    stack: int


class Allocation(NamedTuple):
    """One allocation of the history.

    Attributes:
        seconds: Time of the allocation since the first event.
        end_seconds: Time when it was freed, or None.
        bytes: The requested size.
        stack: The number of the stack that requested it.
    """

    seconds: float
    end_seconds: float | None
    bytes: int
    stack: int


class MemorySeries(NamedTuple):
    """Lowest, last and highest number of bytes in ranges of equal length.

    Attributes:
        allocated: Allocated bytes.
        reserved: Bytes reserved from the driver.
    """

    allocated: tuple[Summary, ...]
    reserved: tuple[Summary, ...]


@dataclass(frozen=True, slots=True)
class History:
    """The recorded history of one device. Its sizes are those requested, before the allocator rounds them.

    Attributes:
        events: Number of events.
        begin_seconds: Unix time of the first event; 0 where this PyTorch records no times, and each event counts as one
            second.
        duration_seconds: Time from the first event to the last.
        by_time: The series over ranges of equal time.
        by_event: The series over ranges of equally many events, in which a pause takes no room.
        peak: What was allocated at the peak.
        peak_seconds: Time of the peak since the first event.
        peak_event: The event of the peak.
        peak_reserved_bytes: Bytes reserved at the peak.
        earlier_bytes: Bytes allocated before the first event.
        ooms: Failed allocations, oldest first.
        largest: The largest allocations in the order of their times; empty unless they were requested.
    """

    events: int
    begin_seconds: float
    duration_seconds: float
    by_time: MemorySeries
    by_event: MemorySeries
    peak: Amount
    peak_seconds: float
    peak_event: int
    peak_reserved_bytes: int
    earlier_bytes: int
    ooms: tuple[OomTraceEvent, ...] = ()
    largest: tuple[Allocation, ...] = ()

    @property
    def has_times(self) -> bool:
        """Whether PyTorch recorded times, so that seconds are not numbers of events."""
        return self.begin_seconds > 0


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """One device in a snapshot.

    Attributes:
        ordinal: The number of the device in its process.
        segments: The segments that the allocator holds.
        uses: What each stack allocated.
        history: The recorded history, or None.
        notes: What a reader of the values has to know, one sentence each.
    """

    ordinal: int
    segments: tuple[Segment, ...]
    uses: tuple[StackUse, ...] = ()
    history: History | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The contents of a snapshot file.

    Attributes:
        name: The name of the file.
        size_bytes: Its size.
        frames: All frames; a stack refers to them by index.
        stacks: The frame numbers of each stack, innermost first.
        devices: The devices that have segments or a history, by ordinal.
        settings: The settings of the allocator.
        notes: What a reader of the file has to know, one sentence each.
    """

    name: str
    size_bytes: int
    frames: tuple[SnapshotFrame, ...]
    stacks: tuple[tuple[int, ...], ...]
    devices: tuple[DeviceMemory, ...]
    settings: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def frames_of(self, stack: int) -> tuple[SnapshotFrame, ...]:
        """The frames of a stack, innermost first."""
        return tuple(self.frames[number] for number in self.stacks[stack])


MAX_BYTES: Final = 64 << 20
"""Limit on the line of a snapshot. The decoded snapshot takes ten times as much memory."""
_STATES = tuple(BlockState)


def encode(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot as lists and dicts."""
    return {
        "name": snapshot.name,
        "size_bytes": snapshot.size_bytes,
        "frames": snapshot.frames,
        "stacks": snapshot.stacks,
        "settings": snapshot.settings,
        "notes": snapshot.notes,
        "devices": [_encode_device(device) for device in snapshot.devices],
    }


def decode(document: dict[str, Any]) -> Snapshot:
    """Build a snapshot from what `encode` returned. The document comes from gpumon's own child and is trusted."""
    return Snapshot(
        name=document["name"],
        size_bytes=document["size_bytes"],
        frames=tuple(SnapshotFrame(*frame) for frame in document["frames"]),
        stacks=tuple(map(tuple, document["stacks"])),
        devices=tuple(_decode_device(device) for device in document["devices"]),
        settings=document["settings"],
        notes=tuple(document["notes"]),
    )


def _encode_device(device: DeviceMemory) -> dict[str, Any]:
    return {
        "ordinal": device.ordinal,
        "segments": [_encode_segment(segment) for segment in device.segments],
        "uses": device.uses,
        "history": None if device.history is None else _encode_history(device.history),
        "notes": device.notes,
    }


def _decode_device(document: dict[str, Any]) -> DeviceMemory:
    return DeviceMemory(
        ordinal=document["ordinal"],
        segments=tuple(_decode_segment(document["ordinal"], *segment) for segment in document["segments"]),
        uses=tuple(StackUse(stack, *(Amount(*amount) for amount in amounts)) for stack, *amounts in document["uses"]),
        history=None if document["history"] is None else _decode_history(document["history"]),
        notes=tuple(document["notes"]),
    )


def _encode_history(history: History) -> dict[str, Any]:
    return {field.name: getattr(history, field.name) for field in fields(history)}


def _decode_history(document: dict[str, Any]) -> History:
    return History(
        **{
            **document,
            "by_time": _decode_series(*document["by_time"]),
            "by_event": _decode_series(*document["by_event"]),
            "peak": Amount(*document["peak"]),
            "ooms": tuple(OomTraceEvent(*oom) for oom in document["ooms"]),
            "largest": tuple(Allocation(*allocation) for allocation in document["largest"]),
        }
    )


def _decode_series(allocated: list[Any], reserved: list[Any]) -> MemorySeries:
    return MemorySeries(tuple(Summary(*item) for item in allocated), tuple(Summary(*item) for item in reserved))


def _encode_segment(segment: Segment) -> tuple[Any, ...]:
    blocks = [(block.size_bytes, _STATES.index(block.state), block.requested_bytes) for block in segment.blocks]
    return (
        segment.address,
        segment.size_bytes,
        segment.stream,
        segment.pool,
        segment.is_large,
        segment.is_expandable,
        blocks,
    )


def _decode_segment(  # noqa: PLR0917 - the fields of an encoded segment, in their order
    ordinal: int,
    address: int,
    size: int,
    stream: int,
    pool: list[int],
    is_large: bool,
    is_expandable: bool,
    blocks: list[tuple[int, int, int]],
) -> Segment:
    return Segment(
        ordinal=ordinal,
        address=address,
        size_bytes=size,
        stream=stream,
        pool=(pool[0], pool[1]),
        is_large=is_large,
        is_expandable=is_expandable,
        blocks=tuple(SegmentBlock(size, _STATES[state], requested) for size, state, requested in blocks),
    )
