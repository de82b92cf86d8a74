"""The NVML functions that gpumon calls, what each one costs, and the calls in flight that may never return.

A thread inside such a call can be neither killed nor interrupted. It can only be abandoned: another thread takes over
the work, and when the call returns after all, the abandoned thread notices and ends. State that both threads could
touch is touched only after `CallsInFlight.finish`.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from threading import get_ident
from typing import Final, NamedTuple

from gpumon.core.text_table import table

EVENT_WAIT: Final = "nvmlEventSetWait_v2"

EVENT_CALLS: Final = (
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlEventSetCreate",
    "nvmlDeviceRegisterEvents",
    EVENT_WAIT,
    "nvmlEventSetFree",
)
"""The calls of the event thread (`gpumon.collect.xids`). They subscribe only this process to events."""

CALLS: Final = (*table("gpumon.collect", "calls"), *EVENT_CALLS)
"""Every NVML function that gpumon calls."""


class CallTally:
    """The cost of one NVML function so far. Abandoned threads may add to it, so the values are approximate.

    Attributes:
        count: Number of calls.
        errors: Number of calls that failed.
        seconds: Total duration.
        longest_seconds: Duration of the longest call.
    """

    __slots__ = ("count", "errors", "longest_seconds", "seconds")

    def __init__(self) -> None:
        self.count = self.errors = 0
        self.seconds = self.longest_seconds = 0.0


class Abandoned(BaseException):
    """Raised in an abandoned thread when its call returns. Only the main function of the thread catches it."""


class Callee(Enum):
    """What a call waits for."""

    DRIVER = "driver"
    HOST = "host"
    """The kernel's /proc, or the user database (getpwuid)."""


class CallInFlight(NamedTuple):
    """One call that has started and not returned."""

    call: str
    started: float
    callee: Callee


class CallsInFlight:
    """The calls in flight, by thread.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._by_thread: dict[int, tuple[str, float, Callee]] = {}
        self._abandoned: set[int] = set()
        self._lock = threading.Lock()

    @contextmanager
    def track(self, call: str, callee: Callee) -> Iterator[None]:
        """Mark the calling thread as inside ``call``; raise `Abandoned` at the end if the thread was abandoned."""
        self.start(call, callee)
        try:
            yield
        finally:
            self.finish()

    def start(self, call: str, callee: Callee = Callee.DRIVER) -> float:
        """Mark the calling thread as inside ``call``; returns the time."""
        started = self.clock()
        self._by_thread[get_ident()] = call, started, callee
        return started

    def finish(self) -> None:
        """Remove the mark of the calling thread.

        Raises:
            Abandoned: The thread was abandoned during the call.
        """
        thread = get_ident()
        with self._lock:
            del self._by_thread[thread]
            if not self._abandoned or thread not in self._abandoned:
                return
            self._abandoned.remove(thread)
        raise Abandoned

    def of_thread(self, thread: int | None) -> CallInFlight | None:
        """The call that a thread is inside, if any."""
        known = None if thread is None else self._by_thread.get(thread)
        return None if known is None else CallInFlight(*known)

    def abandon(self, thread: int, call: CallInFlight) -> bool:
        """Abandon a thread if it is still inside ``call``; return whether it was."""
        with self._lock:
            is_inside = self._by_thread.get(thread) == call
            if is_inside:
                self._abandoned.add(thread)
        return is_inside
