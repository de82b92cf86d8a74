"""Frames of another host, through the user's ssh. Where gpumon is not installed, its collector travels through ssh too.

Nothing is written to the other host. The connection is made again after growing pauses, and a connection that sends
nothing is closed.
"""

import ctypes
import os
import select
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpumon.core.frames import MAX_LINE_BYTES, FrameError, decode
from gpumon.core.json_text import json_bytes
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_bytes, safe_text
from gpumon.streams.base import ThreadStream
from gpumon.streams.child import descriptor_of
from gpumon.streams.remote.bundle import collector_for

CONNECT_SECONDS: Final = 10
_ALIVE_SECONDS: Final = 5
SILENCE_SECONDS: Final = 15.0
"""A connection without a frame for this long, in addition to the interval, is closed."""
MIN_PAUSE_SECONDS: Final = 1.0
MAX_PAUSE_SECONDS: Final = 60.0
_HEALTHY_SECONDS: Final = 60.0
_END_SECONDS: Final = 0.3
_ERROR_BYTES: Final = 4096
_READ_BYTES: Final = 1 << 16
SSH_FAILED: Final = 255
_PR_SET_PDEATHSIG: Final = 1
"""From linux/prctl.h."""
_PRCTL: Final = ctypes.CDLL(None).prctl
"""Found here: between the fork and the start of ssh, nothing may be loaded."""
_START: Final = Path(__file__).with_name("start.py")
_PYTHONS: Final = ("python3", *(f"python3.{minor}" for minor in range(14, 9, -1)))
_IS_NEW: Final = "import sys; sys.exit(sys.version_info < (3, 10))"
_REPLY: Final = b"gpumon: Python "
"""Start of a line of `start.py`, before its version; frames start with a brace."""
_OPTIONS: Final = (
    "-T",
    *("-o", "BatchMode=yes"),
    *("-o", f"ConnectTimeout={CONNECT_SECONDS}"),
    *("-o", f"ServerAliveInterval={_ALIVE_SECONDS}"),
    *("-o", "ServerAliveCountMax=3"),
)
SSH: Final = ("ssh", *_OPTIONS)
"""The user's ssh, which asks for nothing and gives up soon."""
_HINTS: Final = (
    ("Permission denied", "Set up a key for this host; ssh cannot ask for a password here."),
    ("Host key verification failed", "Connect once with ssh by hand, and check the key."),
    ("Could not resolve", "Check the name of the host."),
)


class RemoteStream(ThreadStream):
    """Runs a collector on another host.

    Args:
        host: As for ssh: a name, ``user@name``, or a name of the user's ssh configuration.
        interval: Seconds between frames.
        ssh: The program and its options; other ones in tests.
    """

    def __init__(self, host: str, interval: float = 1.0, ssh: Sequence[str] = SSH) -> None:
        super().__init__(safe_text(host, 64), "gpumon-ssh")
        self._host = host
        self._interval = interval
        self._ssh = tuple(ssh)
        self._pause = MIN_PAUSE_SECONDS
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._awake = threading.Event()
        """Ends the pause before the next connection."""

    def close(self) -> None:
        """Disconnect; the collector ends when its connection does."""
        super().close()
        self._awake.set()
        with self._lock:
            process = self._process
        if process is not None:
            end_ssh(process)

    def connect_now(self) -> None:
        """Connect again at once if a connection has failed."""
        self._pause = MIN_PAUSE_SECONDS
        self._awake.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            started = time.monotonic()
            try:
                problem = self._read_connection()
            except OSError as error:
                problem = _problem(f"ssh cannot be started: {error.strerror or error}.", "Install the OpenSSH client.")
            except ModuleNotFoundError as error:
                problem = _problem(f"{error} is not installed here, so the collector cannot be sent.")
            if time.monotonic() - started > _HEALTHY_SECONDS:
                self._pause = MIN_PAUSE_SECONDS
            self._problem = problem
            self.inbox.ring()
            self._awake.clear()
            if not self._closing.is_set():
                self._awake.wait(self._pause)
            self._pause = min(2 * self._pause, MAX_PAUSE_SECONDS)

    def _read_connection(self) -> Problem:
        """Read one connection until it ends; returns why it ended."""
        with self._lock:  # `close` must not miss a process that starts
            if self._closing.is_set():
                return _problem("The connection was closed.")
            process = start_ssh([*self._ssh, "--", self._host, remote_command(self._interval)])
            self._process = process
        connection = SshConnection(process)
        try:
            is_silent = self._read_lines(connection)
        finally:
            with self._lock:
                self._process = None
            end_ssh(process)
            connection.close()
        return self._end_problem(connection, is_silent=is_silent)

    def _read_lines(self, connection: "SshConnection") -> bool:
        """Read frames until the end; returns whether the connection was silent."""
        limit = SILENCE_SECONDS + self._interval
        has_own_collector = False
        requested: list[str] = []
        end = time.monotonic() + limit  # moved by frames alone: a host may send anything else forever
        while (line := connection.read_line(end - time.monotonic())) is not None:
            if not line:
                return True
            if line.startswith(_REPLY):
                if not has_own_collector:
                    version = safe_bytes(line.removeprefix(_REPLY).rstrip())
                    collector = collector_for(version)
                    if collector is None:
                        connection.old_python = version
                        return False
                    has_own_collector = True
                    connection.send_bundle(collector, limit)
                    end = time.monotonic() + limit
                continue
            try:
                frame = decode(line)
            except FrameError as error:
                self._problem = error.problem
                self.inbox.ring()
                continue
            self._problem = None
            self._pause = MIN_PAUSE_SECONDS
            end = time.monotonic() + limit
            self.inbox.put(frame)
            keys = [device.key for device in frame.devices]
            if has_own_collector and keys != requested:  # `gpumon record` requests them itself
                requested = keys
                connection.send(json_bytes({"look": keys}), limit)
        return False

    def _end_problem(self, connection: "SshConnection", *, is_silent: bool) -> Problem:
        """Why a connection ended, in a sentence."""
        if is_silent:
            return _problem("The host sends no frames.", "gpumon connects again.", ProblemCode.UNRESPONSIVE)
        if connection.old_python:
            remedy = "The collector needs Python 3.6 or later there, or gpumon."
            return _problem(f"The host has only Python {connection.old_python}.", remedy, ProblemCode.NOT_SUPPORTED)
        text = connection.error_text()
        code = connection.exit_code
        if code == SSH_FAILED:
            remedy = next((hint for start, hint in _HINTS if start in text), "")
            return _problem(f"ssh failed: {text or 'it gave no reason'}.", remedy)
        if code == 127:
            remedy = "Install Python 3.6 or later, or gpumon, there."
            return _problem("The host has neither gpumon nor python3.", remedy, ProblemCode.NOT_FOUND)
        detail = f": {text}" if text else ""
        return _problem(f"The collector on the host ended with code {code}{detail}.", "gpumon connects again.")


def remote_command(interval: float) -> str:
    """The command line for the shell of the other host: gpumon if it is installed, else Python with our collector.

    That is the first Python of `_PYTHONS` from 3.10 on, or else python3, which may be an old one.
    """
    program = f"{_START.read_text()}\nstart({interval!r})\n"
    script = (
        f"command -v gpumon >/dev/null 2>&1 && exec gpumon record - --interval {interval:g}; p={shlex.quote(program)}; "
        f'for i in {" ".join(_PYTHONS)}; do $i -c {shlex.quote(_IS_NEW)} 2>/dev/null && exec $i -c "$p"; done; '
        'exec python3 -c "$p"'
    )
    return f"exec sh -c {shlex.quote(script)}"


def start_ssh(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Start ssh with pipes; the kernel ends it when the calling thread has ended, also if gpumon was killed.

    Raises:
        OSError: It cannot be started.
    """
    gpumon = os.getpid()

    def end_with_gpumon() -> None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != gpumon:
            os._exit(1)

    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=end_with_gpumon,  # noqa: PLW1509 - it takes no lock and loads nothing
    )


def end_ssh(process: "subprocess.Popen[bytes]") -> None:
    """End ssh; the shell on the other host ends with its connection."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
            return


class SshConnection:
    """The pipes of one ssh process.

    Attributes:
        old_python: The version of the Python of the host if it is too old, or empty.
    """

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.old_python = ""
        self._process = process
        self._output = descriptor_of(process.stdout)
        self._errors: int | None = descriptor_of(process.stderr)
        self._input = descriptor_of(process.stdin)
        os.set_blocking(self._input, False)
        self._buffer = bytearray()
        self._searched = 0
        """The bytes of the buffer that have no line end: a long line must not be searched again with every read."""
        self._is_overlong = False
        self._error_tail = b""

    @property
    def exit_code(self) -> int | None:
        """Exit code of ssh, negative for a signal."""
        return self._process.poll()

    def read_line(self, timeout: float) -> bytes | None:
        """Read the next line; empty after the timeout, None at the end. A line that is too long is dropped."""
        deadline = time.monotonic() + timeout
        while True:
            end = self._buffer.find(b"\n", self._searched)
            self._searched = len(self._buffer) if end < 0 else 0
            if end >= 0:
                line = bytes(self._buffer[: end + 1])
                del self._buffer[: end + 1]
                if not self._is_overlong:
                    return line
                self._is_overlong = False
                continue
            if len(self._buffer) > MAX_LINE_BYTES:
                self._buffer.clear()
                self._searched = 0
                self._is_overlong = True
            has_more = self._receive(deadline)
            if not has_more:
                return None if has_more is None else b""

    def read_all(self, max_bytes: int, timeout: float) -> bytes:
        """Read everything until the end.

        Raises:
            TimeoutError: There is no end in time.
            ValueError: There are more bytes.
        """
        deadline = time.monotonic() + timeout
        while has_more := self._receive(deadline):
            if len(self._buffer) > max_bytes:
                raise ValueError(f"more than {max_bytes >> 20} MiB")
        if has_more is None:
            return bytes(self._buffer)
        raise TimeoutError

    def _receive(self, deadline: float) -> bool | None:
        """Wait for output; False after the deadline, None at the end, when ssh had a moment to exit."""
        while True:
            sources = [self._output] if self._errors is None else [self._output, self._errors]
            left = deadline - time.monotonic()
            ready = select.select(sources, [], [], max(0.0, left))[0]
            if self._errors in ready:
                self._read_errors()
            if self._output in ready:
                data = os.read(self._output, _READ_BYTES)
                if not data:
                    with suppress(subprocess.TimeoutExpired):
                        self._process.wait(_END_SECONDS)
                    return None
                self._buffer += data
                return True
            if left <= 0:
                return False

    def send_bundle(self, bundle: bytes, timeout: float) -> None:
        """Send the collector; a host that does not read it is found to be silent later."""
        self.send(f"{len(bundle)}\n".encode() + bundle, timeout)

    def send(self, text: bytes, timeout: float) -> None:
        """Send bytes to the other host's standard input, as many as it accepts in time."""
        data = memoryview(text)
        deadline = time.monotonic() + timeout
        while data and (left := deadline - time.monotonic()) > 0:
            if select.select([], [self._input], [], left)[1]:
                with suppress(BlockingIOError):
                    data = data[os.write(self._input, data) :]

    def error_text(self) -> str:
        """The last line that ssh or the host wrote to standard error."""
        while self._errors is not None and select.select([self._errors], [], [], 0)[0]:
            self._read_errors()
        lines = [line for line in self._error_tail.splitlines() if line.strip()]
        return safe_bytes(lines[-1], 200).strip().rstrip(".") if lines else ""

    def close(self) -> None:
        """Close the pipes, but keep what was written to standard error."""
        self.error_text()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._errors = None

    def _read_errors(self) -> None:
        assert self._errors is not None
        data = os.read(self._errors, _ERROR_BYTES)
        if data:
            self._error_tail = (self._error_tail + data)[-_ERROR_BYTES:]
        else:
            self._errors = None


def _problem(reason: str, remedy: str = "", code: ProblemCode = ProblemCode.NOT_READ) -> Problem:
    return Problem(code, reason, remedy)
