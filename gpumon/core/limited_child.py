"""What a child process that reads a file does first: limits on what it may use, and an end together with gpumon."""

import gc
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from gpumon.core.json_text import json_bytes
from gpumon.core.source_file import UnreadableError

_PROGRESS_SECONDS: Final = 0.1
_PIPE_CHECK_SECONDS: Final = 0.5
_RESERVE_BYTES: Final = 8 << 20


class MessageWriter:
    """Writes messages to gpumon; progress at most every tenth of a second.

    Args:
        max_bytes: Maximum size of a message.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._next_progress = 0.0

    def progress(self, read_bytes: int, counts: Callable[[], Sequence[tuple[str, int]]] = tuple) -> None:
        """Report how many bytes of the file were read, and what was found so far."""
        now = time.monotonic()
        if now >= self._next_progress:
            self._next_progress = now + _PROGRESS_SECONDS
            self.write({"event": "progress", "read_bytes": read_bytes, "counts": list(counts())})

    def write(self, message: dict[str, Any]) -> None:
        """Write a message as a line."""
        line = json_bytes(message)
        if len(line) > self._max_bytes:
            line = json_bytes({"event": "refused", "reason": "contains more than gpumon can show"})
        left = memoryview(line)
        while left:  # with PYTHONUNBUFFERED, sys.stdout loses what is left when a signal interrupts a write
            left = left[os.write(sys.stdout.fileno(), left) :]


def run_limited(read: Callable[[], dict[str, Any]], writer: MessageWriter, memory: int, seconds: int) -> None:
    """Read standard input within limits, and write one result or the reason why there is none.

    Args:
        read: Returns the last message.
        writer: Writes it.
        memory: Limit on the address space, in bytes.
        seconds: Limit on the CPU time.
    """
    _limit(resource.RLIMIT_AS, memory)
    _limit(resource.RLIMIT_CPU, seconds)
    _limit(resource.RLIMIT_CORE, 0)
    gc.disable()  # millions of objects live to the end; collecting them repeatedly doubles the time
    reserve = bytearray(_RESERVE_BYTES)
    with _ends_with_gpumon():
        message = _outcome(read)
        if message is None:
            del reserve  # the memory of the file may not be freed yet, and the message needs some
            reason = f"needs more memory to read than the limit of {memory >> 20} MiB"
            message = {"event": "refused", "reason": reason}
        writer.write(message)


def end_with_pipe(main: Callable[[], None]) -> None:
    """Run the program of a child; it ends quietly if gpumon has closed the pipe."""
    try:
        main()
    except BrokenPipeError:
        os._exit(1)


def _outcome(read: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """The last message to gpumon, or None if the memory does not suffice."""
    try:
        return read()
    except UnreadableError as error:
        return {"event": "refused", "reason": str(error)}
    except MemoryError:
        return None


@contextmanager
def _ends_with_gpumon() -> Iterator[None]:
    """End this process soon after gpumon has gone: for a long time it may write nothing that would fail.

    Then the pipe has no reader, also if gpumon has ended before this process began to check.
    """
    pipe = select.poll()
    pipe.register(sys.stdout.fileno(), 0)  # reports an error in any case

    def check_pipe(*_: object) -> None:
        if pipe.poll(0):
            os._exit(1)

    signal.signal(signal.SIGALRM, check_pipe)
    signal.setitimer(signal.ITIMER_REAL, _PIPE_CHECK_SECONDS, _PIPE_CHECK_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)  # while Python finalizes, the signal would kill it


def _limit(kind: int, limit: int) -> None:
    """Set a resource limit, unless a lower one is in force."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
