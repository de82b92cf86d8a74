"""Which thread is inside a call that may never return, since when, and which threads were given up.

A thread in such a call can be neither killed nor interrupted. It can only be left behind: another thread takes over
its work, and when the call returns after all, the thread finds that it was abandoned and ends. From the end of the call
on, the work is the other thread's, so what both could touch is touched only after `Flights.leave`.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from threading import get_ident
from typing import NamedTuple


class Abandoned(BaseException):
    """Raised in a thread whose call came back after the thread had been given up. Nothing but the thread catches it."""


class Callee(Enum):
    """Who does not answer when a call does not return."""

    DRIVER = "driver"
    HOST = "host"
    """The kernel's /proc, or the directory of users."""


class Flight(NamedTuple):
    """One call under way."""

    call: str
    started: float
    callee: Callee


class Flights:
    """The calls under way, by thread.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._under_way: dict[int, Flight] = {}
        self._abandoned: set[int] = set()
        self._lock = threading.Lock()

    @contextmanager
    def flight(self, call: str, callee: Callee) -> Iterator[None]:
        """Marks the calling thread as inside ``call``; raises `Abandoned` at its end if the thread was given up."""
        self.enter(call, callee)
        try:
            yield
        finally:
            self.leave()

    def enter(self, call: str, callee: Callee = Callee.DRIVER) -> None:
        """Marks the calling thread as inside ``call``."""
        self._under_way[get_ident()] = Flight(call, self.clock(), callee)

    def leave(self) -> None:
        """Ends the mark.

        Raises:
            Abandoned: The thread was given up meanwhile.
        """
        thread = get_ident()
        with self._lock:
            del self._under_way[thread]
            if not self._abandoned or thread not in self._abandoned:
                return
            self._abandoned.remove(thread)
        raise Abandoned

    def of(self, thread: int | None) -> Flight | None:
        """The call that a thread is inside, if any."""
        return None if thread is None else self._under_way.get(thread)

    def abandon(self, thread: int, flight: Flight) -> bool:
        """Gives a thread up if it is still inside ``flight``; returns whether it was."""
        with self._lock:
            still = self._under_way.get(thread) is flight
            if still:
                self._abandoned.add(thread)
        return still
