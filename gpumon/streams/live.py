"""Frames of this host: a collector process, supervised and replaced.

The collector may hang or die inside the driver. This process only reads a pipe, so it never blocks; it detects silence
and death, reports which driver call was running, and starts a new collector after growing pauses. A call that crashed
two collectors is not made again.
"""

import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from gpumon.core.collector_contract import COLLECTOR_OUTDATED
from gpumon.core.frames import FrameError, decode
from gpumon.core.inbox import Inbox
from gpumon.core.limits import limit_problem
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.streams.base import ThreadStream
from gpumon.streams.child import Child

COLLECTOR: Final = Path(__file__).resolve().parents[1] / "collect" / "__main__.py"
MIN_RESTART_SECONDS: Final = 0.25
MAX_RESTART_SECONDS: Final = 30.0
HEALTHY_SECONDS: Final = 60.0
"""After a collector has run this long, the pause before the next start is the shortest one again."""
PROBLEM_SHOWN_SECONDS: Final = 10.0
MAX_CRASHES_PER_CALL: Final = 2
_CRASHES: Final = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})


class LiveStream(ThreadStream):
    """Runs a collector and reads its frames.

    Args:
        interval: Seconds between frames.
        command: Command line of the collector; another program in tests.
        silence_seconds: A collector that is silent for this long in addition to the interval is replaced.
    """

    def __init__(
        self, interval: float = 1.0, command: tuple[str, ...] | None = None, silence_seconds: float = 10.0
    ) -> None:
        super().__init__("live", "gpumon-live")
        self.interval = interval
        self._command = command or (sys.executable, str(COLLECTOR))
        self._silence_seconds = silence_seconds
        self._on_demand: dict[str, list[str]] = {}
        """The settings of the collector that name devices."""
        self._has_call_stats = False
        self._child: Child | None = None
        self._failed_at = 0.0
        self._started = 0
        self._next_pause = MIN_RESTART_SECONDS
        self._crashes: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def replaced(self) -> int:
        """Number of collectors that were replaced."""
        return max(0, self._started - 1)

    def start(self) -> None:
        """Start the first collector, and a thread that reads its frames."""
        with suppress(OSError):  # the thread tries again, and reports a second failure
            self._child = self._start_child()
        super().start()

    def close(self) -> None:
        """Stop the collector; a collector that is blocked in the driver is left behind."""
        super().close()
        with self._lock:
            child = self._child
        if child is not None:
            child.end()

    def set_interval(self, seconds: float) -> None:
        """Request another interval from the collector."""
        self.interval = seconds
        self._send({"interval": seconds})

    def request_on_demand(self, keys: Collection[str], process_keys: Collection[str] = ()) -> None:
        """Request the expensive values of exactly the devices with these keys, also from later collectors.

        Until the first call no device is requested: a one-shot status must not disturb the host.

        Args:
            keys: Devices of which everything is read.
            process_keys: Devices of which only the values of the processes are read.
        """
        requested = {"look": sorted(keys), "processes": sorted(process_keys)}
        with self._lock:  # a collector that starts at this moment must not miss the request
            if requested == self._on_demand:
                return
            self._on_demand = requested
        self._send(requested)

    def set_call_stats(self, enabled: bool) -> None:
        """Enable or disable the report of the cost of each driver call, also in later collectors."""
        with self._lock:
            if enabled is self._has_call_stats:
                return
            self._has_call_stats = enabled
        self._send({"count_calls": enabled})

    def _send(self, setting: Mapping[str, Any]) -> None:
        with self._lock:
            child = self._child
        if child is not None:
            child.send(setting)

    def _start_child(self) -> Child:
        dropped = [call for call, crashes in self._crashes.items() if crashes >= MAX_CRASHES_PER_CALL]
        options = [word for call in dropped for word in ("--drop", call)]
        child = Child([*self._command, "--interval", str(self.interval), *options])
        self._started += 1
        if self._on_demand:
            child.send(self._on_demand)
        if self._has_call_stats:
            child.send({"count_calls": True})
        return child

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                pause = self._run_child()
            except Exception as error:  # noqa: BLE001 - if this thread died silently, the screen would freeze
                pause = self._grow_pause()
                limit = limit_problem(error)
                cause = f"{type(error).__name__}: {safe_text(str(error), 200)}." if limit is None else limit.reason
                remedy = f"{'' if limit is None else limit.remedy} gpumon tries again in {pause:g} s.".lstrip()
                reason = f"gpumon failed to run its collector: {cause}"
                with suppress(Exception):  # the bell itself may have failed
                    self._report(Problem(ProblemCode.COLLECTOR_DIED, reason, remedy))
            self._closing.wait(pause)

    def _run_child(self) -> float:
        """Read one collector until it ends, and report how it ended; returns the pause before the next start."""
        child = self._current_child()
        if child is None:
            return 0
        with closing(child):
            started = time.monotonic()
            try:
                was_silent = self._read(child)
            finally:
                child.end()
                self._child = None
            if self._closing.is_set() or child.exit_code == COLLECTOR_OUTDATED:
                return 0
            if time.monotonic() - started > HEALTHY_SECONDS:
                self._next_pause = MIN_RESTART_SECONDS
            pause = self._grow_pause()
            self._report_end(child, was_silent, pause)
            return pause

    def _current_child(self) -> Child | None:
        """The collector that `start` started, or a new one; None after the stream was closed."""
        with self._lock:
            if self._closing.is_set():
                return None
            if self._child is None:
                self._child = self._start_child()
            return self._child

    def _grow_pause(self) -> float:
        pause, self._next_pause = self._next_pause, min(2 * self._next_pause, MAX_RESTART_SECONDS)
        return pause

    def _read(self, child: Child) -> bool:
        """Read frames until the child ends or is silent for too long; returns whether it was silent."""
        while (line := child.read_line(self.interval + self._silence_seconds)) is not None:
            if not line:
                return True
            try:
                self._accept(line)
            except FrameError as error:
                self._report(error.problem)
                continue
            if self._problem is not None and time.monotonic() - self._failed_at > PROBLEM_SHOWN_SECONDS:
                self._problem = None
        return False

    def _accept(self, line: bytes) -> None:
        """Take a line of the collector.

        Raises:
            FrameError: It is no frame.
        """
        self.inbox.put(decode(line))

    def _report_end(self, child: Child, was_silent: bool, pause: float) -> None:
        """Report why a child is replaced, and count a crash against the call that was running."""
        call = child.running_call()
        has_crashed = not was_silent and -child.exit_code in _CRASHES
        if call is None and has_crashed:
            call = child.waiting_call()
        where = f" in {call}" if call else ""
        remedy = f"A new collector starts in {pause:g} s."
        if was_silent:
            code, reason = ProblemCode.COLLECTOR_SILENT, f"The collector stopped responding{where} and is replaced."
        else:
            code, reason = ProblemCode.COLLECTOR_DIED, f"The collector ended: {child.end_text()}{where}."
            if call and has_crashed:
                self._crashes[call] += 1
                if self._crashes[call] >= MAX_CRASHES_PER_CALL:
                    remedy = f"gpumon stopped calling {call}. {remedy}"
        self._report(Problem(code, reason, remedy))

    def _report(self, problem: Problem) -> None:
        self._failed_at = time.monotonic()
        self._problem = problem
        self.inbox.ring()


class LineStream(LiveStream):
    """Lines of a collector that runs all the time, not decoded.

    Attributes:
        lines: The lines, each a frame.
    """

    def __init__(self) -> None:
        super().__init__(1.0, (sys.executable, str(COLLECTOR), "--background"))
        self.lines: Inbox[bytes] = Inbox()

    def _accept(self, line: bytes) -> None:
        self.lines.put(line)
