"""A collector process as its parent sees it.

There is a pipe of lines, a control pipe, and shared memory that names the call that the collector is in. Nothing here
waits for a child that does not answer.
"""

import fcntl
import json
import mmap
import os
import select
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any, Final

from gpumon.core.breadcrumb import BREADCRUMB_BYTES, CRUMB_BYTES
from gpumon.core.frames import MAX_LINE_BYTES
from gpumon.core.text import safe_bytes

_PIPE_BYTES: Final = 1 << 20
_ERROR_BYTES: Final = 4096
_GENTLY_SECONDS: Final = 0.15
_FIRMLY_SECONDS: Final = 0.05


class Child:
    """One collector process, in a session of its own so that no key of the terminal reaches it.

    Args:
        command: Program and arguments; ``--breadcrumb FD`` is added.

    Raises:
        OSError: The system has no room for another process, or the program is not there.
    """

    def __init__(self, command: Sequence[str]) -> None:
        shared = os.memfd_create("gpumon-breadcrumb")
        try:
            os.truncate(shared, BREADCRUMB_BYTES)
            self._breadcrumb = mmap.mmap(shared, BREADCRUMB_BYTES)
            self._process = _start([*command, "--breadcrumb", str(shared)], shared)
        finally:
            os.close(shared)
        self._output = _descriptor(self._process.stdout)
        self._errors: int | None = _descriptor(self._process.stderr)
        self._control: int | None = _descriptor(self._process.stdin)
        os.set_blocking(self._control, False)
        os.set_blocking(self._errors, False)
        _enlarge(self._output)
        self._controlling = threading.Lock()
        self._ending = threading.Lock()
        self._partial = bytearray()
        self._lines: deque[bytes] = deque()
        self._error_tail = b""

    @property
    def pid(self) -> int:
        """Its PID."""
        return self._process.pid

    @property
    def exit_code(self) -> int:
        """Exit code, negative for a signal; 0 while it runs."""
        return self._process.poll() or 0

    def read_line(self, patience: float) -> bytes | None:
        """The next line; empty when none came for ``patience`` seconds, None when the child closed its output."""
        deadline = time.monotonic() + patience
        while not self._lines:
            sources = [self._output] if self._errors is None else [self._output, self._errors]
            left = max(0.0, deadline - time.monotonic())
            ready = select.select(sources, [], [], left)[0]
            if not ready and not left:  # what waits is taken even when this process was stopped for longer (Ctrl-Z)
                return b""
            if self._errors in ready:
                self._take_errors()
            if self._output in ready and not self._take_output():
                return None
        return self._lines.popleft()

    def tell(self, setting: dict[str, Any]) -> None:
        """Sends a setting; one that does not fit into the pipe of a stuck child is dropped."""
        line = b"\n" + json.dumps(setting).encode() + b"\n"  # the first one ends a line that was cut short before
        with self._controlling:
            if self._control is None:
                return
            with suppress(OSError):  # full because the child is stuck, or closed because it has gone
                os.write(self._control, line)

    def running_call(self) -> str | None:
        """The driver call that the child is in, or was in when it died."""
        return self._crumb(0)

    def waiting_call(self) -> str | None:
        """The driver call in which the child waits for events beside all others, or waited when it died."""
        return self._crumb(CRUMB_BYTES)

    def end(self) -> None:
        """Ends the child within 0.2 s: its control pipe is closed, then SIGTERM, then SIGKILL.

        A child that sits in an uninterruptible driver call outlives even that and is left behind. Called a second time,
        it waits for the first.
        """
        with self._ending:
            if not self._close_control():
                return
            if self._gone_within(_GENTLY_SECONDS):
                return
            for number in (signal.SIGTERM, signal.SIGKILL):
                self._process.send_signal(number)
                if self._gone_within(_FIRMLY_SECONDS):
                    return

    def end_text(self) -> str:
        """How it ended, in words."""
        code = self._process.poll()
        if self._errors is not None:
            self._take_errors()
        if code is None:
            return "it closed its output"
        if code < 0:
            return _signal_name(-code)
        lines = self._error_tail.strip().splitlines()
        said = f": {safe_bytes(lines[-1], 200)}" if lines else ""
        return f"exit code {code}{said}"

    def _crumb(self, place: int) -> str | None:
        """The name at a place of the breadcrumb; one that was wiped out has lost only its first byte."""
        return safe_bytes(self._breadcrumb[place : place + CRUMB_BYTES].partition(b"\0")[0]) or None

    def _close_control(self) -> bool:
        """Closes the control pipe; returns whether it was open."""
        with self._controlling:
            if self._control is None:
                return False
            assert self._process.stdin is not None
            self._control = None
            self._process.stdin.close()
            return True

    def _gone_within(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _take_output(self) -> bool:
        data = os.read(self._output, _PIPE_BYTES)
        if not data:
            return False
        *whole, rest = data.split(b"\n")
        if whole:
            whole[0] = bytes(self._partial) + whole[0]
            self._partial.clear()
            self._lines.extend(line for line in whole if line)
        self._partial += rest
        if len(self._partial) > MAX_LINE_BYTES:
            self._partial.clear()
        return True

    def _take_errors(self) -> None:
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


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time signals between the first and the last one have no names
        return f"signal {number}"


def _descriptor(pipe: IO[bytes] | None) -> int:
    assert pipe is not None
    return pipe.fileno()


def _enlarge(pipe: int) -> None:
    """Room for a frame of a thousand processes, so that a collector seldom waits for its reader."""
    with suppress(OSError):  # the user's pipe budget may be spent; it works without
        fcntl.fcntl(pipe, getattr(fcntl, "F_SETPIPE_SZ", 1031), _PIPE_BYTES)
