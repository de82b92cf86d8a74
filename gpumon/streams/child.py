"""The parent's side of a collector process.

The two share a pipe of frames, a control pipe, and memory that names the running driver call. Nothing here waits for a
child that does not respond.
"""

import fcntl
import mmap
import os
import select
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Final

from gpumon.core.collector_contract import BREADCRUMB_BYTES, CRUMB_BYTES
from gpumon.core.frames import MAX_LINE_BYTES
from gpumon.core.json_text import json_bytes
from gpumon.core.text import safe_bytes
from gpumon.core.units import signal_name

_PIPE_BYTES: Final = 1 << 20
_READ_BYTES: Final = 1 << 16
"""Small enough that the buffer of each read does not fragment the heap."""
_ERROR_BYTES: Final = 4096
_CLOSE_TIMEOUT_SECONDS: Final = 0.15
_SIGNAL_TIMEOUT_SECONDS: Final = 0.05
_EXIT_TIMEOUT_SECONDS: Final = 2.0


class Child:
    """One collector process, in a separate session so that signals from the terminal do not reach the process.

    Args:
        command: Program and arguments; ``--breadcrumb FD`` is added.

    Raises:
        OSError: The system cannot start another process, or the program does not exist.
    """

    def __init__(self, command: Sequence[str]) -> None:
        shared = os.memfd_create("gpumon-breadcrumb")
        try:
            os.truncate(shared, BREADCRUMB_BYTES)
            self._breadcrumb = mmap.mmap(shared, BREADCRUMB_BYTES)
            self._process = _start([*command, "--breadcrumb", str(shared)], shared)
        finally:
            os.close(shared)
        self._output = descriptor_of(self._process.stdout)
        self._errors: int | None = descriptor_of(self._process.stderr)
        self._control: int | None = descriptor_of(self._process.stdin)
        os.set_blocking(self._control, False)
        os.set_blocking(self._errors, False)
        # make room for a frame of a thousand processes, so that a collector rarely waits for its reader
        with suppress(OSError):  # the user's limit for pipe buffers may be exhausted; a small pipe works too
            fcntl.fcntl(self._output, getattr(fcntl, "F_SETPIPE_SZ", 1031), _PIPE_BYTES)
        self._control_lock = threading.Lock()
        self._end_lock = threading.Lock()
        self._partial = bytearray()
        self._lines: deque[bytes] = deque()
        self._error_tail = b""

    @property
    def pid(self) -> int:
        """PID of the process."""
        return self._process.pid

    @property
    def exit_code(self) -> int:
        """Exit code, negative for a signal; 0 while the process runs."""
        return self._process.poll() or 0

    def read_line(self, timeout_seconds: float) -> bytes | None:
        """Read the next line; returns an empty line after the timeout, and None after the child closed its output."""
        deadline = time.monotonic() + timeout_seconds
        while not self._lines:
            sources = [self._output] if self._errors is None else [self._output, self._errors]
            left = max(0.0, deadline - time.monotonic())
            ready = select.select(sources, [], [], left)[0]
            if not ready and not left:  # after a stop (Ctrl-Z), pending data is read first
                return b""
            if self._errors in ready:
                self._read_errors()
            if self._output in ready and not self._read_output():
                return None
        return self._lines.popleft()

    def send(self, setting: Mapping[str, Any]) -> None:
        """Send a setting to the collector. A setting that does not fit into the pipe of a stuck child is dropped."""
        line = b"\n" + json_bytes(dict(setting))  # the first line feed ends a line that was truncated before
        with self._control_lock:
            if self._control is None:
                return
            with suppress(OSError):  # full because the child is stuck, or closed because the child exited
                os.write(self._control, line)

    def running_call(self) -> str | None:
        """The driver call that is running, or was running when the child died."""
        return self._crumb(0)

    def waiting_call(self) -> str | None:
        """The driver call that waits for events concurrently with all other calls, or waited when the child died."""
        return self._crumb(CRUMB_BYTES)

    def end(self) -> None:
        """Stop the child within 0.25 s: close its control pipe, then send SIGTERM, then SIGKILL.

        A child that is blocked in an uninterruptible driver call survives SIGKILL and is left behind. A second call
        waits for the first one.
        """
        with self._end_lock:
            if not self._close_control() or self._exits_within(_CLOSE_TIMEOUT_SECONDS):
                return
            for number in (signal.SIGTERM, signal.SIGKILL):
                self._process.send_signal(number)
                if self._exits_within(_SIGNAL_TIMEOUT_SECONDS):
                    return
            threading.Thread(target=self._process.wait, name="gpumon-reap", daemon=True).start()  # no zombie stays

    def close(self) -> None:
        """Close the pipes of a child that has been ended, in the thread that reads them."""
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def end_text(self) -> str:
        """How the process ended, as text.

        The output of a process is closed before the kernel has closed its driver files, so its end is waited for.
        """
        self._exits_within(_EXIT_TIMEOUT_SECONDS)
        code = self._process.poll()
        if self._errors is not None:
            self._read_errors()
        if code is None:
            return "closed its output"
        if code < 0:
            return signal_name(-code)
        lines = self._error_tail.strip().splitlines()
        message = f": {safe_bytes(lines[-1], 200)}" if lines else ""
        return f"exit code {code}{message}"

    def _crumb(self, offset: int) -> str | None:
        """The name in a slot of the breadcrumb; None if its first byte is zero, which means that no call is running."""
        return safe_bytes(self._breadcrumb[offset : offset + CRUMB_BYTES].partition(b"\0")[0]) or None

    def _close_control(self) -> bool:
        """Close the control pipe; returns whether the pipe was open."""
        with self._control_lock:
            if self._control is None:
                return False
            assert self._process.stdin is not None
            self._control = None
            self._process.stdin.close()
            return True

    def _exits_within(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            return True
        return False

    def _read_output(self) -> bool:
        data = os.read(self._output, _READ_BYTES)
        if not data:
            return False
        *complete, rest = data.split(b"\n")
        if complete:
            complete[0] = bytes(self._partial) + complete[0]
            self._partial.clear()
            self._lines.extend(line for line in complete if line)
        self._partial += rest
        if len(self._partial) > MAX_LINE_BYTES:
            self._partial.clear()
        return True

    def _read_errors(self) -> None:
        assert self._errors is not None
        try:
            data = os.read(self._errors, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._errors = None
        self._error_tail = (self._error_tail + data)[-_ERROR_BYTES:]


def _start(command: Sequence[str], shared: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(shared,),
        start_new_session=True,
        bufsize=0,
    )


def descriptor_of(pipe: IO[bytes] | None) -> int:
    """The descriptor of a pipe to a child, made by `subprocess.Popen`."""
    assert pipe is not None
    return pipe.fileno()
