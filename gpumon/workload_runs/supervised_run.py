"""One workload from start to end, supervised by a thread.

Whatever happens to the process, exactly one `RunEnded` arrives in the inbox, as the last item, and no process of the
workload is left running.
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
from gpumon.core.units import signal_name
from gpumon.workload_runs.catalogue import RunRequest
from gpumon.workload_runs.process import READ_BYTES, RunProcess
from gpumon.workload_runs.protocol import EventReader, RunEvent, RunEventKind

HANDSHAKE_TIMEOUT_SECONDS: Final = 15.0
"""Deadline of the handshake, which a workload sends before importing anything."""
PLAN_TIMEOUT_SECONDS: Final = 180.0
"""Deadline of the plan; importing torch from a slow network file system takes this long."""
SILENCE_TIMEOUT_SECONDS: Final = 60.0
"""A workload sends its memory statistics twice a second unless it hangs."""
TERM_TIMEOUT_SECONDS: Final = 2.0
"""Time between SIGTERM and SIGKILL."""
KILL_TIMEOUT_SECONDS: Final = 2.0
_TICK_SECONDS: Final = 0.1
_DRAIN_TIMEOUT_SECONDS: Final = 0.5
MAX_LOG_LINES: Final = 1000
_INBOX_SIZE: Final = 4096
_MAX_LINE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that the workload printed to ``stdout`` or ``stderr``."""

    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The end of a job.

    Attributes:
        exit_code: Exit code of the process, negative for a signal; None if it did not start or cannot be killed.
        cancelled: Whether a stop was requested.
        reason: Why the workload did not end normally, in a sentence; empty for a normal end.
        invalid_lines: Number of lines on the event pipe without a valid event.
        log_bytes: Number of bytes that the workload printed.
    """

    exit_code: int | None
    cancelled: bool
    reason: str
    invalid_lines: int = 0
    log_bytes: int = 0


RunArrival = RunEvent | RunEnded


class SupervisedRun:
    """A running workload.

    Args:
        request: The workload, its device and its parameters.
    """

    def __init__(self, request: RunRequest) -> None:
        self.request = request
        self.inbox: Inbox[RunArrival] = Inbox(_INBOX_SIZE)
        self.log: deque[LogLine] = deque(maxlen=MAX_LOG_LINES)
        """The newest lines that the workload printed."""
        self._process: RunProcess | None = None
        self._cancelled = threading.Event()
        self._allowed = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name=f"gpumon-job-{request.workload.name}", daemon=True)

    @property
    def pid(self) -> int | None:
        """PID of the process, or None before the start."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Whether the job was started and has not ended."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the workload; a failure is reported as a `RunEnded`."""
        try:
            self._thread.start()
        except RuntimeError as error:  # the system cannot start another thread
            self._deliver(RunEnded(None, False, f"The workload could not be started: {error}."))

    def allow(self) -> None:
        """Confirm the start, for which a workload waits after sending its plan."""
        if self._process is not None and not self._allowed.is_set():
            self._allowed.set()
            self._process.allow()

    def cancel(self) -> None:
        """Request a stop; the process ends within `TERM_TIMEOUT_SECONDS` plus the duration of its driver call."""
        self._cancelled.set()

    def wait(self, seconds: float) -> bool:
        """Wait for the end for at most ``seconds``; returns whether the job has ended."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _supervise(self) -> None:
        try:
            self._process = RunProcess(self.request)
        except OSError as error:
            self._deliver(RunEnded(None, False, f"The workload could not be started: {error.strerror or error}."))
            return
        supervisor = _Supervisor(self._process, self._cancelled, self._allowed, self.request.limit_seconds, self.log)
        try:
            for arrival in supervisor.arrivals():
                self._deliver(arrival)
        finally:
            code = self._process.reap(KILL_TIMEOUT_SECONDS)
            self._process.close()
            self._deliver(supervisor.ended(code))

    def _deliver(self, arrival: RunArrival) -> None:
        with suppress(Exception):  # a bell that fails, which belongs to the front end, must not end the run
            self.inbox.put(arrival)


class _Supervisor:
    """Reads the output of the process and enforces its deadlines."""

    def __init__(
        self,
        process: RunProcess,
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
        self._last_event = time.monotonic()
        self._stage = RunEventKind.HELLO
        self._work_started: float | None = None
        self._work_limit = float("inf") if limit_seconds is None else limit_seconds
        self._terminated_at: float | None = None
        self._reason = ""

    def arrivals(self) -> Iterator[RunArrival]:
        """Yield all events until the process has ended or must be killed."""
        while True:
            ready = self._ready(_TICK_SECONDS)
            for descriptor in ready:
                yield from self._read(descriptor)
            if self._process.has_ended:
                break
            now = time.monotonic()
            if not self._reason:
                self._reason = self._overdue(now)
            if (self._cancelled.is_set() or self._reason) and self._must_be_killed(now):
                break
        yield from self._rest()

    def ended(self, exit_code: int | None) -> RunEnded:
        """How the job ended."""
        cancelled = self._cancelled.is_set()
        reason = self._reason
        if exit_code is None:
            reason = f"PID {self._process.pid} cannot be killed: blocked in an uninterruptible driver call."
        elif exit_code < 0 and not cancelled and not reason:
            reason = f"The workload was ended by {signal_name(-exit_code)}."
        log_bytes = sum(log.count for log in self._logs.values())
        return RunEnded(exit_code, cancelled, reason, self._reader.invalid_lines, log_bytes)

    def _ready(self, seconds: float) -> list[int]:
        if not self._open:
            time.sleep(seconds)
            return []
        return select.select(list(self._open), [], [], seconds)[0]

    def _read(self, descriptor: int) -> Iterator[RunArrival]:
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

    def _rest(self) -> Iterator[RunArrival]:
        """Yield what is still in the pipes, for a limited time, since a child left behind may keep the pipes open."""
        deadline = time.monotonic() + _DRAIN_TIMEOUT_SECONDS
        while self._open and time.monotonic() < deadline:
            ready = self._ready(0.0)
            if not ready:
                break
            for descriptor in ready:
                yield from self._read(descriptor)
        self._reader.end()
        for log in self._logs.values():
            log.end()

    def _note(self, event: RunEvent) -> None:
        self._last_event = time.monotonic()
        if event.kind is RunEventKind.HELLO:
            self._stage = RunEventKind.PLAN
        elif event.kind is RunEventKind.PLAN:
            self._stage = RunEventKind.RESULT
            if self._limit_seconds is None:
                planned = event.fields["uses"].get("seconds")
                self._work_limit = 120.0 + 3.0 * (planned if isinstance(planned, (int, float)) else 60.0)

    def _overdue(self, now: float) -> str:
        """Why the process must be stopped; empty if it need not be."""
        silent = now - self._last_event
        if self._stage is RunEventKind.HELLO and silent > HANDSHAKE_TIMEOUT_SECONDS:
            return f"No handshake within {HANDSHAKE_TIMEOUT_SECONDS:.0f} s: not a workload, or not Python."
        if self._stage is RunEventKind.PLAN and silent > PLAN_TIMEOUT_SECONDS:
            return f"Loading torch took more than {PLAN_TIMEOUT_SECONDS:.0f} s."
        if self._stage is RunEventKind.RESULT and silent > SILENCE_TIMEOUT_SECONDS:
            return f"No event for {SILENCE_TIMEOUT_SECONDS:.0f} s: the workload hangs."
        return self._over_limit(now)

    def _over_limit(self, now: float) -> str:
        if self._work_started is None and self._allowed.is_set():
            self._work_started = now
        if self._work_started is not None and now - self._work_started > self._work_limit:
            return f"The workload ran longer than its limit of {self._work_limit:.0f} s."
        return ""

    def _must_be_killed(self, now: float) -> bool:
        """Send SIGTERM at the first call; returns whether the time to react has passed."""
        if self._terminated_at is None:
            self._terminated_at = now
            self._process.signal_group(signal.SIGTERM)
        return now - self._terminated_at >= TERM_TIMEOUT_SECONDS


class _LogReader:
    """Splits the output of a workload into lines; a line without an end is cut."""

    def __init__(self, stream: str, log: deque[LogLine]) -> None:
        self.count = 0
        self._stream = stream
        self._log = log
        self._partial = b""

    def feed(self, data: bytes) -> None:
        """Add the lines that ``data`` completes to the log."""
        self.count += len(data)
        *complete, rest = (self._partial + data).split(b"\n")
        self._partial = rest[-_MAX_LINE_BYTES:]
        for line in complete[-MAX_LOG_LINES:]:
            self._log.append(LogLine(self._stream, safe_bytes(line.rstrip(b"\r"))))

    def end(self) -> None:
        """Add the last line, if it has no line feed."""
        if self._partial:
            self._log.append(LogLine(self._stream, safe_bytes(self._partial)))
            self._partial = b""
