"""The history of a snapshot as a trace that ui.perfetto.dev opens: counters, and the largest allocations as slices."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.core.units import bytes_text
from gpumon.snapshots.model import Allocation, Course, DeviceMemory, History, Snapshot

MOST_ALLOCATIONS: Final = 20_000
"""A viewer in a browser is still quick with as many."""
_MICROSECONDS: Final = 1_000_000
_MOST_FRAMES: Final = 12


def refuse_existing(path: Path) -> None:
    """Makes sure that nothing is overwritten.

    Raises:
        CommandError: There is a file already.
    """
    if os.path.lexists(path):
        reason = f"{safe_text(str(path), 200)} is there already, and nothing is overwritten."
        raise CommandError(Problem(ProblemCode.NOT_WRITTEN, reason, "Give another name."), ExitCode.USAGE)


def save(snapshot: Snapshot, path: Path) -> int:
    """Writes the trace, all of it or nothing, and says how many events it has.

    Raises:
        CommandError: There is nothing to write, or it cannot be written.
    """
    events = list(trace_events(snapshot))
    if not events:
        reason = f"{snapshot.name} has no history that could be drawn over time."
        raise CommandError(Problem(ProblemCode.NOT_FOUND, reason, _HOW_TO_RECORD), ExitCode.BAD_VERDICT)
    text = json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, ensure_ascii=False)
    draft = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        try:
            draft.write_text(text, encoding="utf-8")
            os.link(draft, path)  # fails where there is one already, unlike a rename
        finally:
            with suppress(OSError):
                draft.unlink()
    except FileExistsError:
        refuse_existing(path)
    except OSError as error:
        reason = f"{safe_text(str(path), 200)} cannot be written: {error.strerror}."
        raise CommandError(Problem(ProblemCode.NOT_WRITTEN, reason), ExitCode.USAGE) from None
    return len(events)


_HOW_TO_RECORD: Final = "torch.cuda.memory._record_memory_history() turns it on."


def trace_events(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """The events, one device a process."""
    for device in snapshot.devices:
        if device.history is not None:
            yield _named(device)
            yield from _counters(device.ordinal, device.history)
            yield from _failures(snapshot, device.ordinal, device.history)
            for number, allocation in enumerate(device.history.largest):
                yield from _slice(snapshot, device, number, allocation)


def _named(device: DeviceMemory) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": device.ordinal, "args": {"name": f"cuda:{device.ordinal}"}}


def _counters(ordinal: int, history: History) -> Iterator[dict[str, Any]]:
    """The highest of each stretch of time, so that no peak is lost."""
    width = history.duration_seconds / max(1, len(history.by_time.allocated))
    for name, columns in zip(Course._fields, history.by_time, strict=True):
        for number, column in enumerate(columns):
            when = number * width * _MICROSECONDS
            yield {"ph": "C", "name": name, "pid": ordinal, "ts": when, "args": {"bytes": int(column.high)}}
    peak = {"bytes": history.peak.bytes, "blocks": history.peak.blocks}
    when = history.peak_seconds * _MICROSECONDS
    yield {"ph": "i", "name": "peak", "pid": ordinal, "tid": 0, "ts": when, "s": "p", "args": peak}


def _failures(snapshot: Snapshot, ordinal: int, history: History) -> Iterator[dict[str, Any]]:
    for oom in history.ooms:
        told = {"bytes": oom.bytes, "free_bytes": oom.free_bytes, "stack": _stack(snapshot, oom.stack)}
        when = oom.seconds * _MICROSECONDS
        yield {"ph": "i", "name": "out of memory", "pid": ordinal, "tid": 0, "ts": when, "s": "p", "args": told}


def _slice(snapshot: Snapshot, device: DeviceMemory, number: int, each: Allocation) -> Iterator[dict[str, Any]]:
    """An allocation from its beginning to its end; one that has none lasts to the end of the history."""
    assert device.history is not None
    frame = snapshot.frames_of(each.stack)[0]
    end = device.history.duration_seconds if each.end_seconds is None else each.end_seconds
    told = {"bytes": each.bytes, "freed": each.end_seconds is not None, "stack": _stack(snapshot, each.stack)}
    common = {"cat": "allocation", "id": f"{device.ordinal}.{number}", "pid": device.ordinal, "tid": 0}
    name = f"{bytes_text(each.bytes)} {frame.name}"
    yield {**common, "ph": "b", "name": name, "ts": each.seconds * _MICROSECONDS, "args": told}
    yield {**common, "ph": "e", "name": name, "ts": end * _MICROSECONDS}


def _stack(snapshot: Snapshot, stack: int) -> list[str]:
    frames = snapshot.frames_of(stack)[:_MOST_FRAMES]
    return [f"{frame.name} {frame.file}:{frame.line}" if frame.file else frame.name for frame in frames]
