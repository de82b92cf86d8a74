"""One workload from its start to its end, supervised by a thread: events in, one result out, and nothing left behind.

Whatever happens to the process, the inbox brings exactly one `JobEnded`, and it comes last.
"""

import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from gpumon.core.inbox import Inbox
from gpumon.core.text import safe_bytes
from gpumon.jobs.process import READ_BYTES, JobProcess
from gpumon.jobs.protocol import EventKind, EventReader, JobEvent
from gpumon.jobs.request import JobRequest

HELLO_SECONDS: Final = 15.0
"""It says hello before it loads anything."""
PLAN_SECONDS: Final = 180.0
"""Loading torch from a slow network folder takes that long."""
SILENCE_SECONDS: Final = 60.0
"""It tells of its memory twice a second, unless it hangs."""
TERM_SECONDS: Final = 2.0
"""Between asking it to stop and ending it."""
KILL_SECONDS: Final = 2.0
_TICK_SECONDS: Final = 0.1
_DRAIN_SECONDS: Final = 0.5
LOG_LINES: Final = 1000
_INBOX_SIZE: Final = 4096
_MAX_LINE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that the workload printed."""

    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The end.

    Attributes:
        exit_code: Of the process, negative for a signal; None if it could not be started or does not die.
        cancelled: Whether it was asked to stop.
        reason: What ended it, in a sentence, if it did not come to its own end; empty if it did.
        foreign_lines: Lines on the event pipe that held no event.
        log_bytes: What it printed.
    """

    exit_code: int | None
    cancelled: bool
    reason: str
    foreign_lines: int = 0
    log_bytes: int = 0


JobArrival = JobEvent | JobEnded


class Job:
    """A workload that is being run.

    Args:
        request: What to run.
    """

    def __init__(self, request: JobRequest) -> None:
        self.request = request
        self.inbox: Inbox[JobArrival] = Inbox(_INBOX_SIZE)
        self.log: deque[LogLine] = deque(maxlen=LOG_LINES)
        """The newest lines that it has printed."""
        self._process: JobProcess | None = None
        self._cancelled = threading.Event()
        self._allowed = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name=f"gpumon-job-{request.workload.name}", daemon=True)

    @property
    def pid(self) -> int | None:
        """PID of the process, or None before its start."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Starts it; a start that fails is told like any other end."""
        try:
            self._thread.start()
        except RuntimeError as error:  # the system has no room for another thread
            self._tell(JobEnded(None, False, f"It could not be started: {error}."))

    def allow(self) -> None:
        """Gives leave to begin, which a workload waits for once it has told its plan."""
        if self._process is not None and not self._allowed.is_set():
            self._allowed.set()
            self._process.allow()

    def cancel(self) -> None:
        """Asks it to stop; it is gone within `TERM_SECONDS` and the time that the driver takes to let it go."""
        self._cancelled.set()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within ``seconds``."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _supervise(self) -> None:
        try:
            self._process = JobProcess(self.request)
        except OSError as error:
            self._tell(JobEnded(None, False, f"It could not be started: {error.strerror or error}."))
            return
        watch = _Watch(self._process, self._cancelled, self._allowed, self.request.limit_seconds, self.log)
        try:
            for arrival in watch.arrivals():
                self._tell(arrival)
        finally:
            code = self._process.reap(KILL_SECONDS)
            self._process.close()
            self._tell(watch.ended(code))

    def _tell(self, arrival: JobArrival) -> None:
        with suppress(Exception):  # the bell is the front end's: one that fails does not end the run
            self.inbox.put(arrival)


class _Watch:
    """What comes from the process, and the clocks that it has to keep to."""

    def __init__(
        self,
        process: JobProcess,
        cancelled: threading.Event,
        allowed: threading.Event,
        limit_seconds: float | None,
        log: deque[LogLine],
    ) -> None:
        self._process = process
        self._cancelled = cancelled
        self._allowed = allowed
        self._limit_seconds = limit_seconds
        self._reader = EventReader()
        self._logs = {process.output: _LogReader("stdout", log), process.errors: _LogReader("stderr", log)}
        self._open = {process.events, process.output, process.errors}
        self._began = self._heard = time.monotonic()
        self._stage = EventKind.HELLO
        self._work_began: float | None = None
        self._work_limit = float("inf") if limit_seconds is None else limit_seconds
        self._terminated_at: float | None = None
        self._reason = ""

    def arrivals(self) -> Iterator[JobArrival]:
        """Everything that it says, until it has ended or has to be ended."""
        while True:
            ready = self._ready(_TICK_SECONDS)
            for descriptor in ready:
                yield from self._take(descriptor)
            if self._process.has_ended:
                break
            now = time.monotonic()
            if not self._reason:
                self._reason = self._overdue(now)
            if (self._cancelled.is_set() or self._reason) and self._must_be_killed(now):
                break
        yield from self._rest()

    def ended(self, exit_code: int | None) -> JobEnded:
        """How it ended."""
        cancelled = self._cancelled.is_set()
        reason = self._reason
        if exit_code is None:
            reason = f"PID {self._process.pid} does not die: it waits in a driver call that nothing interrupts."
        elif exit_code < 0 and not cancelled and not reason:
            reason = f"It was ended by {_signal_name(-exit_code)}."
        log_bytes = sum(log.count for log in self._logs.values())
        return JobEnded(exit_code, cancelled, reason, self._reader.foreign, log_bytes)

    def _ready(self, seconds: float) -> list[int]:
        if not self._open:
            time.sleep(seconds)
            return []
        return select.select(list(self._open), [], [], seconds)[0]

    def _take(self, descriptor: int) -> Iterator[JobArrival]:
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._open.discard(descriptor)
            return
        if descriptor in self._logs:
            self._logs[descriptor].feed(data)
            return
        for event in self._reader.feed(data):
            self._note(event)
            yield event

    def _rest(self) -> Iterator[JobArrival]:
        """What is still in the pipes; a child that was left behind may hold them open, so not for ever."""
        deadline = time.monotonic() + _DRAIN_SECONDS
        while self._open and time.monotonic() < deadline:
            ready = self._ready(0.0)
            if not ready:
                break
            for descriptor in ready:
                yield from self._take(descriptor)
        self._reader.end()
        for log in self._logs.values():
            log.end()

    def _note(self, event: JobEvent) -> None:
        self._heard = time.monotonic()
        if event.kind is EventKind.HELLO:
            self._stage = EventKind.PLAN
        elif event.kind is EventKind.PLAN:
            self._stage = EventKind.RESULT
            if self._limit_seconds is None:
                planned = event.fields["uses"].get("seconds")
                self._work_limit = 120.0 + 3.0 * (planned if isinstance(planned, (int, float)) else 60.0)

    def _overdue(self, now: float) -> str:
        """Why it has to be ended, or nothing."""
        silent = now - self._heard
        if self._stage is EventKind.HELLO and silent > HELLO_SECONDS:
            return f"It said nothing for {HELLO_SECONDS:.0f} s after its start: that is no workload, or no Python."
        if self._stage is EventKind.PLAN and silent > PLAN_SECONDS:
            return f"Loading torch took more than {PLAN_SECONDS:.0f} s."
        if self._stage is EventKind.RESULT and silent > SILENCE_SECONDS:
            return f"It has said nothing for {SILENCE_SECONDS:.0f} s: it hangs."
        return self._over_limit(now)

    def _over_limit(self, now: float) -> str:
        if self._work_began is None and self._allowed.is_set():
            self._work_began = now
        if self._work_began is not None and now - self._work_began > self._work_limit:
            return f"It ran longer than its limit of {self._work_limit:.0f} s."
        return ""

    def _must_be_killed(self, now: float) -> bool:
        """Asks it to end, the first time; after that, whether it had its time to."""
        if self._terminated_at is None:
            self._terminated_at = now
            self._process.signal_group(signal.SIGTERM)
        return now - self._terminated_at >= TERM_SECONDS


class _LogReader:
    """Lines out of what a workload prints; one without an end is cut."""

    def __init__(self, stream: str, log: deque[LogLine]) -> None:
        self.count = 0
        self._stream = stream
        self._log = log
        self._partial = b""

    def feed(self, data: bytes) -> None:
        """Keeps the lines that ``data`` completes."""
        self.count += len(data)
        *whole, rest = (self._partial + data).split(b"\n")
        self._partial = rest[-_MAX_LINE_BYTES:]
        for line in whole[-LOG_LINES:]:
            self._log.append(LogLine(self._stream, safe_bytes(line.rstrip(b"\r"))))

    def end(self) -> None:
        """Keeps the last line, if it has no end."""
        if self._partial:
            self._log.append(LogLine(self._stream, safe_bytes(self._partial)))
            self._partial = b""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
