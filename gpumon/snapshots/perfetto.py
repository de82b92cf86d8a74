"""Writes the history of a snapshot as a trace for ui.perfetto.dev: counters, and slices of the largest allocations."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from gpumon.core.json_text import json_bytes
from gpumon.core.new_files import new_file
from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.text import safe_text
from gpumon.core.units import bytes_text
from gpumon.snapshots.model import Allocation, DeviceMemory, History, MemorySeries, Snapshot

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
            yield _process_name(device)
            yield from _counters(device.ordinal, device.history)
            yield from _failures(snapshot, device.ordinal, device.history)
            for number, allocation in enumerate(device.history.largest):
                yield from _slice(snapshot, device, number, allocation)


def _process_name(device: DeviceMemory) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": device.ordinal, "args": {"name": f"cuda:{device.ordinal}"}}


def _counters(ordinal: int, history: History) -> Iterator[dict[str, Any]]:
    """The highest value of each time range, so that no peak is lost."""
    width = history.duration_seconds / max(1, len(history.by_time.allocated))
    for name, columns in zip(MemorySeries._fields, history.by_time, strict=True):
        for number, column in enumerate(columns):
            timestamp = number * width * _MICROSECONDS
            yield {"ph": "C", "name": name, "pid": ordinal, "ts": timestamp, "args": {"bytes": int(column.high)}}
    peak = {"bytes": history.peak.bytes, "blocks": history.peak.blocks}
    timestamp = history.peak_seconds * _MICROSECONDS
    yield {"ph": "i", "name": "peak", "pid": ordinal, "tid": 0, "ts": timestamp, "s": "p", "args": peak}


def _failures(snapshot: Snapshot, ordinal: int, history: History) -> Iterator[dict[str, Any]]:
    for oom in history.ooms:
        arguments = {"bytes": oom.bytes, "free_bytes": oom.free_bytes, "stack": _stack(snapshot, oom.stack)}
        timestamp = oom.seconds * _MICROSECONDS
        yield {
            "ph": "i",
            "name": "out of memory",
            "pid": ordinal,
            "tid": 0,
            "ts": timestamp,
            "s": "p",
            "args": arguments,
        }


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
