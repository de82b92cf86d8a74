"""Listens to every probe of this user on this machine.

One thread looks for sockets once a second and waits for all of them at once. It never waits for a single one, and it
takes only so much from each, so that a process that is stuck, silent, torn or hostile costs itself and nobody else.
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
from gpumon.probe.folder import candidates
from gpumon.probe.news import Answer, Ask, Probe, ProbeNews
from gpumon.probe.places import Places

__all__ = ["Answer", "Ask", "Probe", "ProbeNews", "ProbeWatcher"]

SCAN_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 2.0


class ProbeWatcher:
    """Finds probes, keeps what each has told last, and passes on what comes.

    Args:
        folders: Where to look; if not given, wherever a probe of this user may be.
        pace: Seconds from reading to reading.

    Attributes:
        inbox: A `Probe` whenever one has come, told something or gone, and every `Answer`. It rings without an item
            when `problems` has changed.
    """

    def __init__(self, folders: Iterable[Path] | None = None, pace: float = 1.0) -> None:
        self.inbox: Inbox[ProbeNews] = Inbox()
        self._selector = selectors.DefaultSelector()
        self._places = Places(candidates() if folders is None else folders, self._selector, self.inbox.put, pace)
        self._problems: tuple[Problem, ...] = ()
        self._numbers = count(1)
        self._wishes: deque[Callable[[float], None]] = deque()
        self._settled = threading.Event()
        self._closing = threading.Event()
        self._waking = threading.Lock()
        self._bell: int | None = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="gpumon-probes", daemon=True)

    @property
    def probes(self) -> dict[int, Probe]:
        """The probes that are connected and have greeted, by PID as this process sees it."""
        return dict(self._places.probes)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why folders are not looked into and sockets not listened to."""
        return self._problems

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and all connections."""
        self._closing.set()
        self._wake()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)
        with self._waking:
            if self._bell is not None and not self._thread.is_alive():
                self._selector.close()
                os.close(self._bell)
                self._bell = None

    def settle(self, patience: float) -> bool:
        """Waits until every probe that was found at first has told something; at once if there is none.

        Args:
            patience: Seconds.

        Returns:
            Whether all have.
        """
        return self._settled.wait(max(0.0, patience))

    def set_pace(self, seconds: float) -> None:
        """Asks all probes for statistics so often, and those that come later."""
        self._wish(partial(self._places.set_pace, seconds))

    def ask(self, pid: int, ask: Ask | str, **more: int) -> int:
        """Asks a process for something; one of another user is never connected, so it is never asked.

        Args:
            pid: The process, as in `Probe.pid`.
            ask: What for.
            more: ``ordinal`` for a summary.

        Returns:
            The number by which its `Answer` is known; one comes in any case.
        """
        number = next(self._numbers)
        self._wish(partial(self._places.ask, pid, Ask(ask), number, more))
        return number

    def _wish(self, wish: Callable[[float], None]) -> None:
        self._wishes.append(wish)
        self._wake()

    def _wake(self) -> None:
        with self._waking, suppress(BlockingIOError):
            if self._bell is not None:
                os.eventfd_write(self._bell, 1)

    def _run(self) -> None:
        scan_at = 0.0
        while not self._closing.is_set():
            try:
                now = time.monotonic()
                if now >= scan_at:
                    scan_at = now + SCAN_SECONDS
                    self._places.scan(now)
                self._tell_problems(*self._places.problems.values())
                if self._places.has_heard_all:
                    self._settled.set()
                self._wait_until(scan_at)
            except Exception as error:  # noqa: BLE001 - a thread that died unseen would be figures that stand still
                what = f"{type(error).__name__}: {safe_text(str(error), 200)}"
                self._tell_problems(Problem(ProblemCode.UNKNOWN, f"gpumon failed to listen to a probe: {what}."))
                self._closing.wait(SCAN_SECONDS)
        self._places.end()

    def _wait_until(self, deadline: float) -> None:
        """Waits for a probe to speak or somebody to wish for something, and attends to that."""
        for key, _ in self._selector.select(max(0.0, deadline - time.monotonic())):
            if key.data is not None:
                self._places.attend(key.data, time.monotonic())
            else:
                self._fulfil()

    def _fulfil(self) -> None:
        assert self._bell is not None
        os.eventfd_read(self._bell)
        while self._wishes and not self._closing.is_set():
            self._wishes.popleft()(time.monotonic())

    def _tell_problems(self, *problems: Problem) -> None:
        if problems != self._problems:
            self._problems = problems
            self.inbox.ring()
