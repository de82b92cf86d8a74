"""A snapshot as JSON, for the pipe between gpumon and the child process that reads the file."""

from dataclasses import fields
from typing import Any, Final

from gpumon.core.allocator import BlockState, Segment, SegmentBlock
from gpumon.core.timeline import Summary
from gpumon.snapshots.model import (
    Allocation,
    Amount,
    DeviceMemory,
    History,
    MemorySeries,
    OomTraceEvent,
    Snapshot,
    SnapshotFrame,
    StackUse,
)

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
