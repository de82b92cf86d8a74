"""The file that gpumon's probe leaves when a process runs out of memory, opened as a snapshot of its segments.

Its blocks have no stacks: those would have cost the process too much. The only stack is the one that asked for more.
"""

import json
from typing import Any, Final

from gpumon.core.allocator import BlockState
from gpumon.core.allocator_document import segment_of
from gpumon.core.checks import as_tuple
from gpumon.core.text import safe_text
from gpumon.snapshots.machine import Source, UnreadableError
from gpumon.snapshots.model import Amount, DeviceMemory, Frame, Snapshot, Use
from gpumon.snapshots.tables import whole

_MOST_BYTES: Final = 64 << 20
_MOST_FRAMES: Final = 50
_UNKNOWN: Final = Frame("the probe keeps no stacks of blocks")


def begins_as_json(begin: bytes) -> bool:
    """Whether a file is such a one, or at least no pickle."""
    return begin.lstrip()[:1] == b"{"


def oom_snapshot(source: Source, name: str) -> Snapshot:
    """What the file tells of the segments.

    Raises:
        UnreadableError: It is another JSON document, or a damaged one.
    """
    data = source.read(_MOST_BYTES + 1)
    try:
        told = json.loads(data) if len(data) <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        raise UnreadableError("is damaged: it begins as a JSON document and does not go on as one") from None
    if not isinstance(told, dict) or told.get("kind") != "gpumon-oom":
        raise UnreadableError("is no memory snapshot: it does not begin as a pickle does")
    try:
        return _snapshot(told, name, len(data))
    except (TypeError, ValueError, KeyError, AttributeError, IndexError):
        raise UnreadableError("is damaged: it does not have what gpumon's probe writes") from None


def _snapshot(told: dict[str, Any], name: str, size_bytes: int) -> Snapshot:
    device, asked = told.get("device") or {}, told.get("request") or {}
    ordinal = whole(device.get("ordinal"))
    segments = as_tuple(told.get("segments") or [], segment_of)
    held = [b for segment in segments for b in segment.blocks if b.state is BlockState.ALLOCATED]
    now = Amount(sum(block.requested_bytes for block in held), len(held))
    frames = tuple(_frame(each) for each in (told.get("stack") or [])[:_MOST_FRAMES])
    notes = ["gpumon's probe wrote it when the process ran out of memory. gpumon explain says why it did."]
    if told.get("cut"):
        notes.append("It had more blocks than the probe keeps.")
    if frames:
        first = frames[0]
        notes.append(f"{whole(asked.get('bytes')):,} bytes were asked for in {first.name} ({first.file}:{first.line}).")
    return Snapshot(
        name=name,
        size_bytes=size_bytes,
        frames=(_UNKNOWN,),
        stacks=((0,),),
        devices=(DeviceMemory(ordinal, segments, (Use(0, now),)),),
        settings={
            safe_text(str(key), 80): safe_text(str(value), 200) for key, value in (told.get("settings") or {}).items()
        },
        notes=tuple(notes),
    )


def _frame(told: list[Any]) -> Frame:
    file, line, name = told
    return Frame(safe_text(str(name), 200), safe_text(str(file), 400), whole(line))
