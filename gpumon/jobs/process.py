"""The process of a workload as its parent sees it: three pipes to read, one to speak on, and its group to end."""

import json
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from typing import Final

from gpumon.jobs.catalogue import runner
from gpumon.jobs.request import JobRequest

READ_BYTES: Final = 1 << 16
_POLL_SECONDS: Final = 0.01


class JobProcess:
    """A workload that runs, in a session and process group of its own.

    It ends when this process does, however that ends: what it hears is a pipe whose other end is only here.

    Args:
        request: What to run.

    Raises:
        OSError: The system has no room for another process, or the interpreter is not there.
    """

    def __init__(self, request: JobRequest) -> None:
        self.events, told = os.pipe()
        try:
            heard, self._control = os.pipe()
        except OSError:
            os.close(self.events)
            os.close(told)
            raise
        self._control_lock = threading.Lock()
        command = [str(request.python), str(runner()), str(request.workload.file)]
        command += ["--events", str(told), "--control", str(heard), "--device", request.device]
        command += ["--parameters", json.dumps(dict(request.parameters))]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(told, heard),
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **request.environment},
                bufsize=0,
            )
        except OSError:
            os.close(self.events)
            os.close(self._control)
            raise
        finally:
            os.close(told)
            os.close(heard)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.output = self._process.stdout.fileno()
        self.errors = self._process.stderr.fileno()
        for descriptor in (self.events, self.output, self.errors):
            os.set_blocking(descriptor, False)

    @property
    def pid(self) -> int:
        """Its PID, which is its process group as well."""
        return self._process.pid

    def allow(self) -> None:
        """Gives leave to begin; after `close` nobody is told, for the descriptor may be another's by then."""
        with self._control_lock, suppress(OSError):
            if self._control >= 0:
                os.write(self._control, b"go\n")

    def signal_group(self, number: signal.Signals) -> None:
        """Sends a signal to it and to all that it has started; its PID cannot be anybody else's before `reap`."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    @property
    def has_ended(self) -> bool:
        """Whether the workload itself has ended; it stays a zombie, so that its group can still be named."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def reap(self, patience: float) -> int | None:
        """Ends all that is left of the group and takes the exit code, negative for a signal.

        Args:
            patience: Seconds for it to die, which takes as long as a driver call does that nothing interrupts.

        Returns:
            The exit code, or None if it does not die.
        """
        self.signal_group(signal.SIGKILL)
        deadline = time.monotonic() + patience
        while not self.has_ended:
            if time.monotonic() >= deadline:
                return None
            time.sleep(_POLL_SECONDS)
        return self._process.wait()

    def close(self) -> None:
        """Closes the pipes; what still runs of the workload is ended by its guard."""
        with self._control_lock:
            os.close(self._control)
            self._control = -1
        os.close(self.events)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
