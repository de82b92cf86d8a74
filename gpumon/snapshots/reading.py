"""Has a snapshot read by a child with limits; tells how far it is, and can be given up at any moment."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.inbox import Inbox
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_bytes, safe_text
from gpumon.snapshots.codec import MOST_BYTES, decoded
from gpumon.snapshots.model import Snapshot

READER: Final = Path(__file__).with_name("__main__.py")
_MOST_SAID_BYTES: Final = 1 << 16
_LEAST_MEMORY: Final = 1 << 30
_MEMORY_A_BYTE: Final = 4
"""Memory that a byte of the file may take; an ordinary one takes a third of a byte."""
_SHARE_OF_FREE: Final = 0.75
_LEAST_SECONDS: Final = 60
_BYTES_A_SECOND: Final = 2_000_000
"""A file that takes longer was made to; an ordinary one is read twenty times as fast."""
_PACKED: Final = 20
"""A compressed file may hold so many times its size."""
_MEMINFO: Final = Path("/proc/meminfo")
_REMEDY: Final = "Give a file that torch.cuda.memory._dump_snapshot() wrote."


class Progress(NamedTuple):
    """How far it is.

    Attributes:
        read_bytes: Of the file.
        size_bytes: The file's size.
        seconds: Since the beginning.
    """

    read_bytes: int
    size_bytes: int
    seconds: float


class Reading:
    """Reads one file.

    Args:
        path: The file.
        largest: How many of the largest allocations of each device are wanted one by one.

    Raises:
        CommandError: There is no such file, or it may not be read.
    """

    def __init__(self, path: Path, largest: int = 0) -> None:
        self.inbox: Inbox[Progress] = Inbox(size=4)
        self.outcome: Snapshot | CommandError | None = None
        """What came of it, or None while it is read."""
        self.name = safe_text(str(path), 200)
        """Of the file, as it can be shown."""
        self._file = _opened(path)
        self.size_bytes = os.fstat(self._file).st_size
        self._largest = largest
        self._begun = time.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cancelled = False
        self._deadline_seconds = _LEAST_SECONDS + self.size_bytes * self._expansion // _BYTES_A_SECOND

    def start(self) -> None:
        """Begins to read.

        Raises:
            CommandError: The system has no room for another process.
        """
        self._begun = time.monotonic()
        try:
            self._process = subprocess.Popen(
                [sys.executable, str(READER), *self._arguments()],
                stdin=self._file,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise _unreadable(self.name, f"cannot be read: no process can be started ({error.strerror})") from None
        finally:
            os.close(self._file)
        threading.Thread(target=self._follow, args=(self._process,), name="gpumon-snapshot", daemon=True).start()

    def cancel(self) -> None:
        """Gives it up."""
        self._is_cancelled = True
        if self._process is not None:
            with suppress(OSError):
                self._process.kill()

    @property
    def progress(self) -> Progress:
        """That nothing was read so far."""
        return Progress(0, self.size_bytes, time.monotonic() - self._begun)

    @property
    def _expansion(self) -> int:
        return _PACKED if os.pread(self._file, 2, 0) == b"\x1f\x8b" else 1

    def _arguments(self) -> list[str]:
        memory = _LEAST_MEMORY + self.size_bytes * self._expansion * _MEMORY_A_BYTE
        available = _available_bytes()
        if available is not None:
            memory = min(memory, int(available * _SHARE_OF_FREE))
        return [
            f"--name={self.name}",
            f"--largest={self._largest}",
            f"--memory={memory}",
            f"--seconds={self._deadline_seconds}",
        ]

    def _follow(self, process: "subprocess.Popen[bytes]") -> None:
        """Takes what the child tells, to its end."""
        assert process.stdout is not None
        assert process.stderr is not None
        timer = threading.Timer(2 * self._deadline_seconds, process.kill)  # its own limit counts processor time only
        timer.daemon = True
        timer.start()
        outcome, said = None, b""
        try:
            outcome = self._outcome(process.stdout)
            said = b"" if outcome is not None else process.stderr.read(_MOST_SAID_BYTES)
        finally:
            timer.cancel()
            process.kill()
            code = process.wait()
            process.stdout.close()
            process.stderr.close()
            self.outcome = outcome or self._death(code, said)
            self.inbox.ring()

    def _outcome(self, pipe: IO[bytes]) -> Snapshot | CommandError | None:
        """The result, or why there is none; None if the child died."""
        while line := pipe.readline(MOST_BYTES):
            try:
                told: dict[str, Any] = json.loads(line)
            except ValueError:
                return None  # torn, because it died while it wrote
            if told["event"] == "progress":
                seconds = time.monotonic() - self._begun
                self.inbox.put(Progress(told["read_bytes"], self.size_bytes, seconds))
            elif told["event"] == "refused":
                return _unreadable(self.name, safe_text(told["reason"]))
            else:
                return decoded(told["snapshot"])
        return None

    def _death(self, code: int, said: bytes) -> CommandError:
        if self._is_cancelled:
            return CommandError(Problem(ProblemCode.NOT_READ, f"{self.name} was given up."), ExitCode.BAD_VERDICT)
        if code == -signal.SIGXCPU:
            return _unreadable(self.name, f"takes longer to read than {self._deadline_seconds} seconds")
        if code < 0:
            why = f"signal {-code} ended the reader, perhaps for want of memory"
            return _unreadable(self.name, f"could not be read: {why}")
        lines = said.strip().splitlines()
        why = safe_bytes(lines[-1], 200) if lines else f"exit code {code}"
        return _unreadable(self.name, f"could not be read: {why}")


def read(path: Path, largest: int = 0) -> Snapshot:
    """Reads a file to its end.

    Raises:
        CommandError: It is not there or cannot be read.
    """
    return finished(Reading(path, largest))


def finished(reading: Reading) -> Snapshot:
    """Reads a file that is open already to its end.

    Raises:
        CommandError: It cannot be read.
    """
    reading.start()
    try:
        while reading.outcome is None:
            reading.inbox.arrived.wait()
            reading.inbox.drain()
    except BaseException:
        reading.cancel()
        raise
    if isinstance(reading.outcome, CommandError):
        raise reading.outcome
    return reading.outcome


def _opened(path: Path) -> int:
    name = safe_text(str(path), 200)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe without a writer would hang
    except FileNotFoundError:
        problem = Problem(ProblemCode.NOT_FOUND, f"There is no file {name}.", _REMEDY)
        raise CommandError(problem, ExitCode.NOT_THERE) from None
    except (OSError, ValueError) as error:
        raise _unreadable(name, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _unreadable(name, "is not a file")
    return descriptor


def _unreadable(name: str, clause: str) -> CommandError:
    return CommandError(Problem(ProblemCode.INVALID_VALUE, f"{name} {clause}.", _REMEDY), ExitCode.USAGE)


def _available_bytes() -> int | None:
    """Memory that can be had without swapping anything out, or None where the kernel does not tell."""
    with suppress(OSError, ValueError, IndexError):
        for each in _MEMINFO.read_text(encoding="ascii").splitlines():
            if each.startswith("MemAvailable:"):
                return int(each.split()[1]) << 10
    return None
