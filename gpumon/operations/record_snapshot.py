"""Has a running process record the history of PyTorch's allocator and write a memory snapshot."""

from typing import Final

from gpumon.operations.recorded_file import RecordedFile, request_files
from gpumon.probe.client import ProbeWatcher
from gpumon.probe.messages import RequestKind

MAX_SECONDS: Final = 120.0
"""Longest recording."""
_ANSWER_SECONDS: Final = 60.0
"""Longest time to write the snapshot."""


def record_snapshot(watcher: ProbeWatcher, pid: int, seconds: float) -> RecordedFile:
    """Have a process record its memory history for a time and write a snapshot, and wait for the file.

    The watcher is that of `connected_watcher`; its inbox is drained. The time is up to `MAX_SECONDS`; 0 for a snapshot
    of what is allocated now.
    """
    arguments = {"milliseconds": int(1000 * seconds)}
    (file,) = request_files(watcher, (pid,), RequestKind.MEMORY_HISTORY, seconds + _ANSWER_SECONDS, arguments)
    return file
