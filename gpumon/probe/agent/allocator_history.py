"""Records the history of PyTorch's CUDA allocator for a time, and writes a memory snapshot with it."""

from __future__ import annotations

import os
import pickle
import sys
import time

from .messages import RefusedError
from .written_files import MAX_FILE_BYTES, new_file, remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from .pytorch import Torch

MAX_MILLISECONDS = 120_000
MAX_ENTRIES = 100_000
"""Of the history; the oldest are overwritten. PyTorch turns each into Python objects while the program waits."""
_MIN_BYTES_FREE = 500 << 20
_INTERVAL = 0.5


def record(torch: Torch, request: dict[str, Any]) -> Generator[float, None, dict[str, Any]]:
    """Record the history and write a snapshot. A history that the program records itself is left alone.

    Args:
        torch: The PyTorch of this process, which has a CUDA context.
        request: ``milliseconds`` to record, 0 for a snapshot of what is allocated now.

    Returns:
        The fields of a `gpumon.probe.messages.WrittenFile`.

    Raises:
        RefusedError: There is no snapshot; the text gives the reason.
    """
    milliseconds = int(request.get("milliseconds", 0))
    if not 0 <= milliseconds <= MAX_MILLISECONDS:
        raise RefusedError(f"Memory history is recorded for up to {MAX_MILLISECONDS // 1000} s.")
    memory = vars(sys.modules["torch.cuda.memory"])
    if "_record_memory_history" not in memory or "_snapshot" not in memory:
        raise RefusedError("This PyTorch has no memory snapshots: they need 2.1 or later.")
    if not torch.has_native_backend:
        raise RefusedError("The allocator's backend is cudaMallocAsync, which has no memory snapshots.")
    is_recorded = getattr(torch.library, "_cuda_isHistoryEnabled", None)
    if is_recorded is None:
        raise RefusedError("This PyTorch does not report whether the program records memory history itself.")
    path = f"{new_file('memory', _MIN_BYTES_FREE)}_{os.getpid()}.pickle"
    notes = []
    if is_recorded():
        notes.append("The program records memory history itself: its recording was left as it is.")
        yield from _wait(milliseconds)
        snapshot, pause = _snapshot(memory)
    elif milliseconds:
        record_history = memory["_record_memory_history"]
        record_history(enabled="all", context="alloc", stacks="python", max_entries=MAX_ENTRIES)
        try:
            yield from _wait(milliseconds)
            snapshot, pause = _snapshot(memory)
        finally:
            record_history(enabled=None)
    else:
        snapshot, pause = _snapshot(memory)
    entries = max((len(trace) for trace in snapshot.get("device_traces", ())), default=0)
    if entries >= MAX_ENTRIES:
        notes.append(f"Only the last {MAX_ENTRIES:,} allocations and frees are in the history.")
    if pause > 0.1:
        notes.append(f"The process waited up to {pause:.1f} s while the snapshot was taken.")
    return {"path": path, "size_bytes": _write(path, snapshot), "notes": notes}


def _wait(milliseconds: int) -> Generator[float, None, None]:
    end = time.monotonic() + milliseconds / 1000.0
    while time.monotonic() < end:
        yield min(_INTERVAL, max(0.0, end - time.monotonic()))


def _snapshot(memory: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """The snapshot, and the seconds that it took."""
    start = time.monotonic()
    return memory["_snapshot"](), time.monotonic() - start


def _write(path: str, snapshot: dict[str, Any]) -> int:
    """Write the snapshot as `torch.cuda.memory._dump_snapshot` does; return the size in bytes.

    Raises:
        RefusedError: The file is too large.
        OSError: The disk is full.
    """
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            pickle.dump(snapshot, file)
    except BaseException:
        remove(path)
        raise
    size = os.stat(path).st_size
    if size > MAX_FILE_BYTES:
        remove(path)
        raise RefusedError(f"The snapshot is larger than {MAX_FILE_BYTES >> 30} GiB.")
    return size
