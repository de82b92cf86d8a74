"""The parent's side of a workload process: three pipes to read, a control pipe, and the process group to kill."""

import os
import signal
import subprocess
import threading
import time
import uuid
from contextlib import suppress
from typing import Final

from gpumon.core.json_text import json_line
from gpumon.workload_runs.catalogue import RunRequest, runner
from gpumon.workload_runs.interpreter import python_environment

READ_BYTES: Final = 1 << 16
_POLL_SECONDS: Final = 0.01
_RUN_VARIABLE: Final = "GPUMON_WORKLOAD_RUN"
"""The environment variable by which the guard in ``workloads/_kit/guard.py`` recognizes all processes of a run."""


class RunProcess:
    """A running workload, in a separate session and process group.

    The workload ends when this process ends for any reason: it watches the control pipe, whose other end only this
    process holds.

    Args:
        request: The workload, its device and its parameters.

    Raises:
        OSError: The system cannot start another process, or the interpreter does not exist.
    """

    def __init__(self, request: RunRequest) -> None:
        self.events, events_end = os.pipe()
        try:
            control_end, self._control = os.pipe()
        except OSError:
            os.close(self.events)
            os.close(events_end)
            raise
        self._control_lock = threading.Lock()
        command = [str(request.python), str(runner()), str(request.workload.file)]
        command += ["--events", str(events_end), "--control", str(control_end), "--device", request.device]
        command += ["--parameters", json_line(dict(request.parameters))]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(events_end, control_end),
                start_new_session=True,
                env={
                    **python_environment(),
                    "PYTHONUNBUFFERED": "1",
                    **request.environment,
                    _RUN_VARIABLE: uuid.uuid4().hex,
                },
                bufsize=0,
            )
        except OSError:
            os.close(self.events)
            os.close(self._control)
            raise
        finally:
            os.close(events_end)
            os.close(control_end)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.output = self._process.stdout.fileno()
        self.errors = self._process.stderr.fileno()
        for descriptor in (self.events, self.output, self.errors):
            os.set_blocking(descriptor, False)

    @property
    def pid(self) -> int:
        """PID of the workload, which is also the id of its process group."""
        return self._process.pid

    def allow(self) -> None:
        """Confirm the start; does nothing after `close`, since the descriptor may have been reused by then."""
        with self._control_lock, suppress(OSError):
            if self._control >= 0:
                os.write(self._control, b"go\n")

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the workload and all processes that it started; the PID is not reused before `reap`."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    @property
    def has_ended(self) -> bool:
        """Whether the workload itself has ended; it stays a zombie, so that its process group id is not reused."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def reap(self, timeout_seconds: float) -> int | None:
        """Kill what is left of the process group and collect the exit code, negative for a signal.

        Args:
            timeout_seconds: Time to wait, since a process cannot die during an uninterruptible driver call.

        Returns:
            The exit code, or None if the process is still alive.
        """
        self.signal_group(signal.SIGKILL)
        deadline = time.monotonic() + timeout_seconds
        while not self.has_ended:
            if time.monotonic() >= deadline:
                return None
            time.sleep(_POLL_SECONDS)
        return self._process.wait()

    def close(self) -> None:
        """Close the pipes; the guard of the workload ends whatever of it still runs."""
        with self._control_lock:
            os.close(self._control)
            self._control = -1
        os.close(self.events)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
