"""Returns memory that is no longer used to the system: settings of the C library's allocator, and when to collect."""

import ctypes
import gc
from contextlib import suppress
from typing import Final

_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
"""Parameters of ``mallopt`` in glibc."""
_LARGE_BYTES: Final = 128 << 10
_QUIET_SECONDS: Final = 2.0
_MIN_PAUSE_SECONDS: Final = 5.0
_MAX_PAUSE_SECONDS: Final = 10.0


def limit_heap() -> None:
    """Keep one heap for all threads, and return every large block at once.

    By default, each of many threads fills a separate heap, of which little is returned after its end, and the first
    large block that is freed raises the size up to which blocks stay in the heap. Without glibc, nothing is changed.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)


def collect_rarely() -> None:
    """Let garbage wait: what has been imported is not looked through again, and frames make no cycles."""
    gc.freeze()
    gc.set_threshold(50_000)


def release_unused() -> None:
    """Collect garbage, and return free memory of the heap to the system, also from below blocks that are in use."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class ReleaseSchedule:
    """When to release memory: soon after something large was closed, once nothing more is closed, but rarely.

    The widgets of a closed screen refer to each other, so that only a complete collection frees them. Python waits with
    that until there is a quarter more than before, and by then live objects lie between them.
    """

    def __init__(self, seconds: float) -> None:
        """Begin at a monotonic time."""
        self._released = seconds
        self._closed: float | None = None

    def note_closed(self, seconds: float) -> None:
        """Note the monotonic time at which something was closed."""
        self._closed = seconds

    def is_due(self, seconds: float) -> bool:
        """Whether to release memory at a monotonic time; if so, it is not due again until something is closed."""
        pause = seconds - self._released
        if self._closed is None or pause < _MIN_PAUSE_SECONDS:
            return False
        if pause < _MAX_PAUSE_SECONDS and seconds - self._closed < _QUIET_SECONDS:
            return False
        self._released, self._closed = seconds, None
        return True
