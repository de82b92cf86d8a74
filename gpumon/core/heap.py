"""The memory allocator of the C library, set so that memory that is no longer used goes back to the system."""

import ctypes
from contextlib import suppress
from typing import Final

_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
"""Parameters of ``mallopt`` in glibc."""
_LARGE_BYTES: Final = 128 << 10


def limit_heap() -> None:
    """Keep one heap for all threads, and return every large block at once.

    By default, each of many threads fills a separate heap, of which little is returned after its end, and the first
    large block that is freed raises the size up to which blocks stay in the heap. Without glibc, nothing is changed.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
