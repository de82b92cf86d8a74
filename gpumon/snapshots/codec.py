"""What is kept of a snapshot as JSON, for the pipe between the child that reads the file and gpumon."""

from dataclasses import fields
from typing import Any, Final

from gpumon.core.allocator import Block, BlockState, Segment
from gpumon.core.timeline import Summary
from gpumon.snapshots.model import Allocation, Amount, Course, DeviceMemory, Frame, History, OutOfMemory, Snapshot, Use

MOST_BYTES: Final = 64 << 20
"""Of the line that a snapshot becomes. What gpumon makes of it takes ten times as much."""
_STATES = tuple(BlockState)


def encoded(snapshot: Snapshot) -> dict[str, Any]:
    """As plain lists and dicts."""
    return {
        "name": snapshot.name,
        "size_bytes": snapshot.size_bytes,
        "frames": snapshot.frames,
        "stacks": snapshot.stacks,
        "settings": snapshot.settings,
        "notes": snapshot.notes,
        "devices": [_encoded_device(device) for device in snapshot.devices],
    }


def decoded(told: dict[str, Any]) -> Snapshot:
    """The other way; what comes is from a child of ours, and has this form."""
    return Snapshot(
        name=told["name"],
        size_bytes=told["size_bytes"],
        frames=tuple(Frame(*each) for each in told["frames"]),
        stacks=tuple(map(tuple, told["stacks"])),
        devices=tuple(_decoded_device(each) for each in told["devices"]),
        settings=told["settings"],
        notes=tuple(told["notes"]),
    )


def _encoded_device(device: DeviceMemory) -> dict[str, Any]:
    return {
        "ordinal": device.ordinal,
        "segments": [_encoded_segment(segment) for segment in device.segments],
        "uses": device.uses,
        "history": None if device.history is None else _encoded_history(device.history),
        "notes": device.notes,
    }


def _decoded_device(told: dict[str, Any]) -> DeviceMemory:
    return DeviceMemory(
        ordinal=told["ordinal"],
        segments=tuple(_decoded_segment(told["ordinal"], *each) for each in told["segments"]),
        uses=tuple(Use(stack, *(Amount(*each) for each in amounts)) for stack, *amounts in told["uses"]),
        history=None if told["history"] is None else _decoded_history(told["history"]),
        notes=tuple(told["notes"]),
    )


def _encoded_history(history: History) -> dict[str, Any]:
    return {field.name: getattr(history, field.name) for field in fields(history)}


def _decoded_history(told: dict[str, Any]) -> History:
    return History(
        **{
            **told,
            "by_time": _decoded_course(*told["by_time"]),
            "by_event": _decoded_course(*told["by_event"]),
            "peak": Amount(*told["peak"]),
            "ooms": tuple(OutOfMemory(*each) for each in told["ooms"]),
            "largest": tuple(Allocation(*each) for each in told["largest"]),
        }
    )


def _decoded_course(allocated: list[Any], reserved: list[Any]) -> Course:
    return Course(tuple(Summary(*each) for each in allocated), tuple(Summary(*each) for each in reserved))


def _encoded_segment(segment: Segment) -> tuple[Any, ...]:
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


def _decoded_segment(  # noqa: PLR0917 - in the order in which they are encoded
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
        blocks=tuple(Block(size, _STATES[state], asked) for size, state, asked in blocks),
    )
