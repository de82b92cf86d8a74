"""The heap of the C library: one for all threads, and none of it is kept for large blocks that are gone."""

import subprocess
import sys
import weakref

import pytest

from gpumon.core.heap import ReleaseSchedule, release_unused

FILL_HEAPS = """
import ctypes, sys, threading
from gpumon.core.heap import limit_heap

if sys.argv[1] == "limited":
    limit_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
release = threading.Barrier(9)

def fill():
    blocks = [ctypes.c_void_p(libc.malloc(4096)) for _ in range(64)]
    release.wait()  # a thread that ends would leave its heap to the next one
    for block in blocks:
        libc.free(block)

threads = [threading.Thread(target=fill) for _ in range(8)]
for thread in threads:
    thread.start()
release.wait()
for thread in threads:
    thread.join()
libc.open_memstream.restype = ctypes.c_void_p
text, size = ctypes.c_char_p(), ctypes.c_size_t()
file = ctypes.c_void_p(libc.open_memstream(ctypes.byref(text), ctypes.byref(size)))
libc.malloc_info(0, file)
libc.fclose(file)
print(text.value.count(b"<heap nr="))
"""


def heaps(how: str) -> int:
    """Number of heaps of a process after eight of its threads have used memory at the same time."""
    done = subprocess.run(
        [sys.executable, "-c", FILL_HEAPS, how], capture_output=True, text=True, timeout=30, check=False
    )
    if "malloc_info" in done.stderr or "open_memstream" in done.stderr:
        pytest.skip("the C library is not glibc")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_all_threads_share_one_heap() -> None:
    assert heaps("default") > 1
    assert heaps("limited") == 1


def test_memory_is_released_soon_after_the_last_screen_was_closed() -> None:
    schedule = ReleaseSchedule(0.0)
    assert not schedule.is_due(6.0), "nothing was closed"
    schedule.note_closed(6.0)
    assert not schedule.is_due(7.0), "another screen may be closed"
    assert schedule.is_due(8.5)
    assert not schedule.is_due(60.0), "nothing was closed since"
    schedule.note_closed(8.6)
    assert not schedule.is_due(13.4), "releases have a pause between them"


def test_memory_is_released_every_ten_seconds_while_screens_are_closed_all_the_time() -> None:
    schedule = ReleaseSchedule(0.0)
    due = []
    for second in range(200):
        schedule.note_closed(second)
        due += [second] * schedule.is_due(second)
    assert due == [*range(10, 200, 10)]


def test_what_refers_to_itself_is_released() -> None:
    class Node:
        def __init__(self) -> None:
            self.self = self

    node = weakref.ref(Node())
    release_unused()
    assert node() is None
