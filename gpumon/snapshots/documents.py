"""A snapshot as a JSON document with public names, and its history as a trace for ui.perfetto.dev."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from gpumon.core.holes import Holes, SegmentLayout
from gpumon.core.json_text import json_bytes
from gpumon.core.new_files import new_file
from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.text import safe_text
from gpumon.core.units import bytes_text
from gpumon.snapshots.model import Allocation, Amount, DeviceMemory, History, MemorySeries, Snapshot, SnapshotFrame
from gpumon.snapshots.stack_tree import Measure, stack_changes

_SCHEMA: Final = 1


def snapshot_document(snapshot: Snapshot, top: int, earlier: Snapshot | None = None) -> dict[str, Any]:
    """The JSON document of a snapshot.

    ``top`` limits the stacks, changes, segment groups and failed allocations of each device.
    """
    devices = [_device_document(snapshot, device, top) for device in snapshot.devices]
    document = {
        "schema": _SCHEMA,
        "file": snapshot.name,
        "size_bytes": snapshot.size_bytes,
        "settings": snapshot.settings,
        "notes": list(snapshot.notes),
        "compared_with": None if earlier is None else earlier.name,
        "devices": devices,
    }
    if earlier is not None:
        for device, device_document in zip(snapshot.devices, devices, strict=True):
            device_document["changes"] = _changes(earlier, (snapshot, device), top)
    return document


def _device_document(snapshot: Snapshot, device: DeviceMemory, top: int) -> dict[str, Any]:
    layout = SegmentLayout(device.segments, device.ordinal)
    uses = sorted(device.uses, key=lambda use: -max(use.now.bytes, use.peak.bytes))
    return {
        "device": device.ordinal,
        "segments": {"segments_count": len(layout.segments), **_holes_document(layout.holes)},
        "pools": [
            {
                "pool": list(group.pool),
                "stream": group.stream,
                "is_large": group.is_large,
                "segments_count": len(group.segments),
                **_holes_document(group.holes),
            }
            for group in layout.groups[:top]
        ],
        "history": None if device.history is None else _history_document(snapshot, device.history, top),
        "stacks_count": len(uses),
        "stacks": [
            {
                **_amount_document("allocated", use.now),
                **_amount_document("peak", use.peak),
                **_amount_document("history", use.ever),
                "frames": _frame_documents(snapshot.frames_of(use.stack)),
            }
            for use in uses[:top]
        ],
        "notes": list(device.notes),
    }


def _history_document(snapshot: Snapshot, history: History, top: int) -> dict[str, Any]:
    return {
        "events_count": history.events,
        "begin_seconds": history.begin_seconds or None,
        "duration_seconds": history.duration_seconds if history.has_times else None,
        **_amount_document("peak", history.peak),
        "peak_after_seconds": history.peak_seconds if history.has_times else None,
        "peak_reserved_bytes": history.peak_reserved_bytes,
        "allocated_before_bytes": history.earlier_bytes,
        "ooms_count": len(history.ooms),
        "ooms": [
            {
                "after_seconds": oom.seconds if history.has_times else None,
                "requested_bytes": oom.bytes,
                "free_bytes": oom.free_bytes,
                "frames": _frame_documents(snapshot.frames_of(oom.stack)),
            }
            for oom in history.ooms[:top]
        ],
    }


def _changes(earlier: Snapshot, now: tuple[Snapshot, DeviceMemory], top: int) -> list[dict[str, Any]]:
    before = next((device for device in earlier.devices if device.ordinal == now[1].ordinal), None)
    shares = stack_changes((earlier, before), now, Measure.NOW, innermost_first=True)
    shares.sort(key=lambda share: -share.weight)
    return [
        {
            "change_bytes": share.amount.bytes - share.before.bytes,
            **_amount_document("allocated", share.amount),
            **_amount_document("before", share.before),
            "frames": _frame_documents(share.frames),
        }
        for share in shares[:top]
    ]


def _holes_document(holes: Holes) -> dict[str, Any]:
    return {
        "reserved_bytes": holes.size,
        "allocated_bytes": holes.active,
        "pending_free_bytes": holes.pending,
        "free_bytes": holes.free,
        "largest_hole_bytes": holes.largest,
        "releasable_bytes": holes.releasable,
        "fragmentation_ratio": round(holes.fragmentation, 4),
    }


def _amount_document(name: str, amount: Amount) -> dict[str, int]:
    return {f"{name}_bytes": amount.bytes, f"{name}_blocks_count": amount.blocks}


def _frame_documents(frames: Sequence[SnapshotFrame]) -> list[dict[str, Any]]:
    return [{"name": frame.name, "file": frame.file or None, "line": frame.line or None} for frame in frames]


MAX_ALLOCATIONS: Final = 20_000
"""The viewer in a browser stays fast with this many."""
_MICROSECONDS: Final = 1_000_000
_MAX_FRAMES: Final = 12


def refuse_existing(path: Path) -> None:
    """Check that no file would be overwritten.

    Raises:
        CommandError: The file exists.
    """
    if os.path.lexists(path):
        reason = f"{safe_text(str(path), 200)} exists already. gpumon does not overwrite files."
        raise CommandError.usage(ProblemCode.NOT_WRITTEN, reason, "Use another file name.")


def save(snapshot: Snapshot, path: Path) -> int:
    """Write the complete trace, or no file.

    Returns:
        The number of events.

    Raises:
        CommandError: The snapshot has no history, or the file cannot be written.
    """
    events = list(trace_events(snapshot))
    if not events:
        reason = f"{snapshot.name} has no history."
        raise CommandError.failure(ProblemCode.NOT_FOUND, reason, _HOW_TO_RECORD)
    text = json_bytes({"displayTimeUnit": "ms", "traceEvents": events})
    try:
        with new_file(path) as file:
            file.write(text)
    except FileExistsError:
        refuse_existing(path)
    except OSError as error:
        reason = f"{safe_text(str(path), 200)} cannot be written: {error.strerror}."
        raise CommandError.usage(ProblemCode.NOT_WRITTEN, reason) from None
    return len(events)


_HOW_TO_RECORD: Final = "Call torch.cuda.memory._record_memory_history() before the snapshot is taken."


def trace_events(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """The events of the trace; each device is a process in it."""
    for device in snapshot.devices:
        if device.history is not None:
            yield {"ph": "M", "name": "process_name", "pid": device.ordinal, "args": {"name": f"cuda:{device.ordinal}"}}
            yield from _counters(device.ordinal, device.history)
            yield from _failures(snapshot, device.ordinal, device.history)
            for number, allocation in enumerate(device.history.largest):
                yield from _slice(snapshot, device, number, allocation)


def _counters(ordinal: int, history: History) -> Iterator[dict[str, Any]]:
    """The highest value of each time range, so that no peak is lost."""
    width = history.duration_seconds / max(1, len(history.by_time.allocated))
    for name, columns in zip(MemorySeries._fields, history.by_time, strict=True):
        for number, column in enumerate(columns):
            timestamp = number * width * _MICROSECONDS
            yield {"ph": "C", "name": name, "pid": ordinal, "ts": timestamp, "args": {"bytes": int(column.high)}}
    yield _instant("peak", ordinal, history.peak_seconds, history.peak._asdict())


def _failures(snapshot: Snapshot, ordinal: int, history: History) -> Iterator[dict[str, Any]]:
    for oom in history.ooms:
        arguments = {"bytes": oom.bytes, "free_bytes": oom.free_bytes, "stack": _stack(snapshot, oom.stack)}
        yield _instant("out of memory", ordinal, oom.seconds, arguments)


def _instant(name: str, ordinal: int, seconds: float, arguments: dict[str, Any]) -> dict[str, Any]:
    timestamp = seconds * _MICROSECONDS
    return {"ph": "i", "name": name, "pid": ordinal, "tid": 0, "ts": timestamp, "s": "p", "args": arguments}


def _slice(snapshot: Snapshot, device: DeviceMemory, number: int, allocation: Allocation) -> Iterator[dict[str, Any]]:
    """One allocation as a slice, which ends with the history if it was not freed."""
    assert device.history is not None
    frame = snapshot.frames_of(allocation.stack)[0]
    end = device.history.duration_seconds if allocation.end_seconds is None else allocation.end_seconds
    arguments = {
        "bytes": allocation.bytes,
        "freed": allocation.end_seconds is not None,
        "stack": _stack(snapshot, allocation.stack),
    }
    common = {"cat": "allocation", "id": f"{device.ordinal}.{number}", "pid": device.ordinal, "tid": 0}
    name = f"{bytes_text(allocation.bytes)} {frame.name}"
    yield {**common, "ph": "b", "name": name, "ts": allocation.seconds * _MICROSECONDS, "args": arguments}
    yield {**common, "ph": "e", "name": name, "ts": end * _MICROSECONDS}


def _stack(snapshot: Snapshot, stack: int) -> list[str]:
    frames = snapshot.frames_of(stack)[:_MAX_FRAMES]
    return [f"{frame.name} {frame.file}:{frame.line}" if frame.file else frame.name for frame in frames]
