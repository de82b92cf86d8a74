"""Frames of this machine: a collector process, watched and replaced.

The child may hang or die inside the driver. This side only reads a pipe, so it is never held up; it notices silence
and death, tells which driver call was running, and starts a new child with growing pauses. A call that killed two
children is left out from then on.
"""

import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gpumon.core.exits import COLLECTOR_OUTDATED
from gpumon.core.frames import FrameError, decode
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.streams.base import FrameInbox
from gpumon.streams.child import Child

COLLECTOR: Final = Path(__file__).resolve().parents[1] / "collect" / "__main__.py"
FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 30.0
HEALTHY_SECONDS: Final = 60.0
SHOWN_SECONDS: Final = 10.0
DEATHS_PER_CALL: Final = 2
_CRASHES: Final = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})


class LiveStream:
    """Runs a collector and reads its frames.

    Args:
        interval: Seconds from frame to frame.
        command: How to start a collector; another program in tests.
        silence_seconds: Silence beyond the interval after which a collector is replaced.
    """

    title = "live"

    def __init__(
        self, interval: float = 1.0, command: tuple[str, ...] | None = None, silence_seconds: float = 10.0
    ) -> None:
        self.inbox = FrameInbox()
        self.interval = interval
        self._command = command or (sys.executable, str(COLLECTOR))
        self._silence_seconds = silence_seconds
        self._looked_at: list[str] = []
        self._counts_calls = False
        self._child: Child | None = None
        self._problem: Problem | None = None
        self._failed_at = 0.0
        self._started = 0
        self._next_pause = FIRST_PAUSE
        self._deaths: Counter[str] = Counter()
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="gpumon-live", daemon=True)

    @property
    def problem(self) -> Problem | None:
        """Why the collector was replaced, while that is news."""
        return self._problem

    @property
    def replaced(self) -> int:
        """How many collectors have been replaced."""
        return max(0, self._started - 1)

    def start(self) -> None:
        """Starts the first collector at once, and a thread that reads it."""
        with suppress(OSError):  # the thread tries again, and says so if it fails again
            self._child = self._start_child()
        self._thread.start()

    def close(self) -> None:
        """Ends the collector, gently at first; one that the driver holds is left to itself."""
        self._closing.set()
        with self._lock:
            child = self._child
        if child is not None:
            child.end()

    def set_interval(self, seconds: float) -> None:
        """Asks the collector for another interval."""
        self.interval = seconds
        self._tell_child({"interval": seconds})

    def look(self, keys: Collection[str]) -> None:
        """Asks for the costly figures of the devices with these keys alone; a collector that comes later is asked too.

        Nobody looks until this was called: a recording and a one-shot status are to disturb nothing.
        """
        wanted = sorted(keys)
        with self._lock:  # a collector that starts at this moment must not miss it
            if wanted == self._looked_at:
                return
            self._looked_at = wanted
        self._tell_child({"look": wanted})

    def count_calls(self, wanted: bool) -> None:
        """Asks for what each driver call costs, or for it no more; a collector that comes later is asked too."""
        with self._lock:
            if wanted is self._counts_calls:
                return
            self._counts_calls = wanted
        self._tell_child({"count_calls": wanted})

    def _tell_child(self, setting: dict[str, Any]) -> None:
        with self._lock:
            child = self._child
        if child is not None:
            child.tell(setting)

    def _start_child(self) -> Child:
        dropped = [call for call, deaths in self._deaths.items() if deaths >= DEATHS_PER_CALL]
        drops = [word for call in dropped for word in ("--drop", call)]
        child = Child([*self._command, "--interval", str(self.interval), *drops])
        self._started += 1
        if self._looked_at:
            child.tell({"look": self._looked_at})
        if self._counts_calls:
            child.tell({"count_calls": True})
        return child

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                pause = self._run_child()
            except Exception as error:  # noqa: BLE001 - a reader that died unseen would be a screen that stands still
                pause = self._grow_pause()
                reason = f"gpumon failed to run its collector: {type(error).__name__}: {safe_text(str(error), 200)}."
                with suppress(Exception):  # the bell may be what failed
                    self._tell(Problem(ProblemCode.COLLECTOR_DIED, reason, f"It is tried again in {pause:g} s."))
            self._closing.wait(pause)

    def _run_child(self) -> float:
        """Reads one collector to its end and tells how it ended; returns the pause before the next one."""
        child = self._current_child()
        if child is None:
            return 0
        started = time.monotonic()
        try:
            silent = self._read(child)
        finally:
            child.end()
            self._child = None
        if self._closing.is_set() or child.exit_code == COLLECTOR_OUTDATED:
            return 0
        if time.monotonic() - started > HEALTHY_SECONDS:
            self._next_pause = FIRST_PAUSE
        pause = self._grow_pause()
        self._report(child, silent, pause)
        return pause

    def _current_child(self) -> Child | None:
        """The collector that `start` started, or a new one; None when the stream was closed."""
        with self._lock:
            if self._closing.is_set():
                return None
            if self._child is None:
                self._child = self._start_child()
            return self._child

    def _grow_pause(self) -> float:
        pause, self._next_pause = self._next_pause, min(2 * self._next_pause, LONGEST_PAUSE)
        return pause

    def _read(self, child: Child) -> bool:
        """Reads frames until the child ends or falls silent; returns whether it fell silent."""
        while (line := child.read_line(self.interval + self._silence_seconds)) is not None:
            if not line:
                return True
            try:
                frame = decode(line)
            except FrameError as error:
                self._tell(error.problem)
                continue
            if self._problem is not None and time.monotonic() - self._failed_at > SHOWN_SECONDS:
                self._problem = None
            self.inbox.put(frame)
        return False

    def _report(self, child: Child, silent: bool, pause: float) -> None:
        """Notes why a child is replaced, and blames the call that it died in."""
        call = child.running_call()
        has_crashed = not silent and -child.exit_code in _CRASHES
        if call is None and has_crashed:
            call = child.waiting_call()
        inside = f" in {call}" if call else ""
        again = f"The next one starts in {pause:g} s."
        if silent:
            code, reason = ProblemCode.COLLECTOR_SILENT, f"The collector fell silent{inside} and is replaced."
        else:
            code, reason = ProblemCode.COLLECTOR_DIED, f"The collector ended: {child.end_text()}{inside}."
            if call and has_crashed:
                self._deaths[call] += 1
                if self._deaths[call] >= DEATHS_PER_CALL:
                    again = f"{call} is not called any more. {again}"
        self._tell(Problem(code, reason, again))

    def _tell(self, problem: Problem) -> None:
        self._failed_at = time.monotonic()
        self._problem = problem
        self.inbox.ring()
