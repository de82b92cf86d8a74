"""The client of every probe of this user on this host.

One thread discovers sockets once a second and waits for all connections at once. It never blocks on one of them and
limits the bytes that it reads from each, so that a process that hangs, sends nothing, or sends garbage does not affect
the others.
"""

import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from gpumon.core.inbox import Inbox
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.probe.messages import Answer, Probe, ProbeMessage, RequestKind
from gpumon.probe.registry import SocketRegistry

__all__ = ["Answer", "Probe", "ProbeMessage", "ProbeWatcher", "RequestKind"]

SCAN_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 2.0


class ProbeWatcher:
    """Discovers probes, keeps the latest state of each process, and delivers messages.

    Args:
        folders: Where to look for sockets; by default wherever a probe of this user may listen; for root, also those of
            others.
        pace: Seconds between two readings.

    Attributes:
        inbox: A `Probe` whenever one has connected, reported or disconnected, and every `Answer`. It rings without an
            item when `problems` has changed.
    """

    def __init__(self, folders: Iterable[Path] | None = None, pace: float = 1.0) -> None:
        self.inbox: Inbox[ProbeMessage] = Inbox()
        self._selector = selectors.DefaultSelector()
        self._registry = SocketRegistry(folders, self._selector, self.inbox.put, pace)
        self._problems: tuple[Problem, ...] = ()
        self._numbers = count(1)
        self._calls: deque[Callable[[float], None]] = deque()
        self._settled = threading.Event()
        self._closing = threading.Event()
        self._wakeup_lock = threading.Lock()
        self._wakeup: int | None = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="gpumon-probes", daemon=True)

    @property
    def probes(self) -> dict[int, Probe]:
        """The processes whose probes are connected and have sent ``hello``, by PID in gpumon's PID namespace."""
        return dict(self._registry.probes)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why folders and sockets are not used."""
        return self._problems

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and close all connections."""
        self._closing.set()
        self._wake()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)
        with self._wakeup_lock:
            if self._wakeup is not None and not self._thread.is_alive():
                self._selector.close()
                os.close(self._wakeup)
                self._wakeup = None

    def settle(self, timeout_seconds: float) -> bool:
        """Wait until every probe of the first scan has sent statistics; return immediately if there is none.

        Args:
            timeout_seconds: Longest time to wait.

        Returns:
            Whether all have.
        """
        return self._settled.wait(max(0.0, timeout_seconds))

    def set_pace(self, seconds: float) -> None:
        """Request statistics at this interval from all probes, also from those that connect later."""
        self._call(partial(self._registry.set_pace, seconds))

    def ask(self, pid: int, ask: RequestKind | str, **arguments: int) -> int:
        """Send a request to a process.

        Args:
            pid: The process, as in `Probe.pid`.
            ask: The request.
            arguments: ``ordinal`` for a summary.

        Returns:
            The number of the `Answer`. There is always one; it has a problem if no probe of the process is connected.
        """
        number = next(self._numbers)
        self._call(partial(self._registry.ask, pid, RequestKind(ask), number, arguments))
        return number

    def _call(self, call: Callable[[float], None]) -> None:
        """Have the thread call a function with the monotonic time."""
        self._calls.append(call)
        self._wake()

    def _wake(self) -> None:
        with self._wakeup_lock, suppress(BlockingIOError):
            if self._wakeup is not None:
                os.eventfd_write(self._wakeup, 1)

    def _run(self) -> None:
        next_scan = 0.0
        while not self._closing.is_set():
            try:
                now = time.monotonic()
                if now >= next_scan:
                    next_scan = now + SCAN_SECONDS
                    self._registry.scan(now)
                self._publish_problems(*self._registry.problems.values())
                if self._registry.has_all_readings:
                    self._settled.set()
                self._wait_until(next_scan)
            except Exception as error:  # noqa: BLE001 - without this thread the screen would silently show old values
                description = f"{type(error).__name__}: {safe_text(str(error), 200)}"
                self._publish_problems(
                    Problem(ProblemCode.UNKNOWN, f"gpumon failed to read from a probe: {description}.")
                )
                self._closing.wait(SCAN_SECONDS)
        self._registry.close()

    def _wait_until(self, deadline: float) -> None:
        """Wait for messages and calls, and handle them."""
        for key, _ in self._selector.select(max(0.0, deadline - time.monotonic())):
            if key.data is not None:
                self._registry.receive(key.data, time.monotonic())
            else:
                self._run_calls()

    def _run_calls(self) -> None:
        assert self._wakeup is not None
        os.eventfd_read(self._wakeup)
        while self._calls and not self._closing.is_set():
            self._calls.popleft()(time.monotonic())

    def _publish_problems(self, *problems: Problem) -> None:
        if problems != self._problems:
            self._problems = problems
            self.inbox.ring()
