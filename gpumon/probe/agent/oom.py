"""Keeps the last minute of statistics, and writes a file when PyTorch runs out of memory."""

from __future__ import annotations

import time
from collections import deque

from .debug import log_exception

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .allocator import Allocator
    from .pytorch import Torch

HISTORY_SECONDS = 60.0
MAX_FILES = 10
_HISTORY_FIELDS = ("allocated_bytes", "reserved_bytes", "inactive_split_bytes", "alloc_retries_count")
_FILES_AT_ONCE = 3
_MIN_FILE_INTERVAL_SECONDS = 10.0
"""Between two files after the first `_FILES_AT_ONCE`: a program may run out of memory on purpose, again and again."""


class OomWriter:
    """Writes a file with everything that explains an out-of-memory error.

    Args:
        torch: The PyTorch of this process.
        allocator: Its allocator.

    Attributes:
        files: Paths of the files that were written.
    """

    def __init__(self, torch: Torch, allocator: Allocator) -> None:
        self.files: list[str] = []
        self._torch = torch
        self._allocator = allocator
        self._history: dict[int, deque[tuple[float, dict[str, Any]]]] = {}
        self._attempts = 0
        self._attempted_at = 0.0

    def add_to_history(self, now: float, devices: list[dict[str, Any]]) -> None:
        """Add a sample of every device; samples older than a minute are dropped.

        Args:
            now: Monotonic seconds.
            devices: Their statistics.
        """
        for device in devices:
            samples = self._history.setdefault(device["ordinal"], deque())
            samples.append((now, {field: device[field] for field in _HISTORY_FIELDS}))
            while samples[0][0] < now - HISTORY_SECONDS:
                samples.popleft()

    def write(self, ordinal: int, requested_bytes: int, limit_bytes: int, free_bytes: int) -> None:
        """Write the file, on the thread that requests the memory and before PyTorch raises OutOfMemoryError.

        No error of the probe is raised. What the program's signal handlers raise, such as KeyboardInterrupt and
        SystemExit, is passed on to the program.
        """
        try:
            now = time.monotonic()
            if self._attempts >= _FILES_AT_ONCE and now - self._attempted_at < _MIN_FILE_INTERVAL_SECONDS:
                return
            self._attempts += 1
            self._attempted_at = now
            number = self._attempts
            from . import oom_file  # only a program that runs out of memory pays for this import

            request = {"bytes": requested_bytes, "limit_bytes": limit_bytes, "free_bytes": free_bytes}
            samples = tuple(self._history.get(ordinal, ()))  # one atomic copy: the probe's thread keeps appending
            history = [{"seconds_before": round(now - seconds, 3), **sample} for seconds, sample in samples]
            document = oom_file.document(self._torch, self._allocator, ordinal, request, history)
            self.files += oom_file.write(document, number, MAX_FILES)
        except Exception:  # the program receives its own OutOfMemoryError, and no error of the probe
            log_exception()
