"""Reads a snapshot in a child process with resource limits; reports its progress and can be cancelled at any time."""

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

from gpumon.core.inbox import Inbox
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.text import safe_bytes, safe_text
from gpumon.snapshots.codec import MAX_BYTES, decode
from gpumon.snapshots.model import Snapshot

READER: Final = Path(__file__).with_name("__main__.py")
_MAX_STDERR_BYTES: Final = 1 << 16
_MIN_MEMORY_BYTES: Final = 1 << 30
_MEMORY_PER_FILE_BYTE: Final = 4
"""Memory allowed for each byte of the file; an ordinary file takes a third of a byte."""
_MAX_AVAILABLE_SHARE: Final = 0.75
_MIN_SECONDS: Final = 60
_MIN_BYTES_PER_SECOND: Final = 2_000_000
"""A hostile file may take longer and is rejected; an ordinary file is read twenty times as fast."""
_MAX_COMPRESSION_RATIO: Final = 20
"""Assumed for a compressed file."""
_MEMINFO: Final = Path("/proc/meminfo")
_REMEDY: Final = "Use a file that torch.cuda.memory._dump_snapshot() wrote."


class Progress(NamedTuple):
    """The progress of a reader.

    Attributes:
        read_bytes: Bytes of the file that were read.
        size_bytes: The size of the file.
        seconds: Time since the start.
    """

    read_bytes: int
    size_bytes: int
    seconds: float


class SnapshotReader:
    """Reads one file.

    Args:
        path: The file.
        largest: How many of the largest allocations of each device to return individually.

    Attributes:
        inbox: Receives the progress; rings without an item when `outcome` is set.
        outcome: The snapshot or the error, or None while the file is being read.
        name: The path of the file as safe text.

    Raises:
        CommandError: The file does not exist or cannot be opened.
    """

    def __init__(self, path: Path, largest: int = 0) -> None:
        self.inbox: Inbox[Progress] = Inbox(size=4)
        self.outcome: Snapshot | CommandError | None = None
        self.name = safe_text(str(path), 200)
        self._file = _open(path)
        self.size_bytes = os.fstat(self._file).st_size
        self._largest = largest
        self._started_at = time.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cancelled = False
        self._has_timed_out = False
        self._deadline_seconds = _MIN_SECONDS + self.size_bytes * self._expansion // _MIN_BYTES_PER_SECOND

    def start(self) -> None:
        """Start the child process.

        Raises:
            CommandError: The system cannot start a process.
        """
        self._started_at = time.monotonic()
        try:
            self._process = subprocess.Popen(
                [sys.executable, str(READER), *self._arguments()],
                stdin=self._file,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise _unreadable(self.name, f"cannot be read: gpumon cannot start a process ({error.strerror})") from None
        finally:
            os.close(self._file)
        threading.Thread(target=self._follow, args=(self._process,), name="gpumon-snapshot", daemon=True).start()

    def cancel(self) -> None:
        """Stop reader."""
        self._is_cancelled = True
        if self._process is not None:
            with suppress(OSError):
                self._process.kill()

    def _time_out(self) -> None:
        self._has_timed_out = True
        if self._process is not None:
            self._process.kill()

    @property
    def progress(self) -> Progress:
        """The progress before the first byte was read."""
        return Progress(0, self.size_bytes, time.monotonic() - self._started_at)

    @property
    def _expansion(self) -> int:
        return _MAX_COMPRESSION_RATIO if os.pread(self._file, 2, 0) == b"\x1f\x8b" else 1

    def _arguments(self) -> list[str]:
        memory = _MIN_MEMORY_BYTES + self.size_bytes * self._expansion * _MEMORY_PER_FILE_BYTE
        available = _available_bytes()
        if available is not None:
            memory = min(memory, int(available * _MAX_AVAILABLE_SHARE))
        return [
            f"--name={self.name}",
            f"--largest={self._largest}",
            f"--memory={memory}",
            f"--seconds={self._deadline_seconds}",
        ]

    def _follow(self, process: "subprocess.Popen[bytes]") -> None:
        """Read the messages of the child until it ends."""
        assert process.stdout is not None
        assert process.stderr is not None
        timer = threading.Timer(2 * self._deadline_seconds, self._time_out)
        timer.daemon = True
        timer.start()
        outcome, stderr = None, b""
        try:
            outcome = self._outcome(process.stdout)
            stderr = b"" if outcome is not None else process.stderr.read(_MAX_STDERR_BYTES)
        finally:
            timer.cancel()
            process.kill()
            code = process.wait()
            process.stdout.close()
            process.stderr.close()
            self.outcome = outcome or self._error(code, stderr)
            self.inbox.ring()

    def _outcome(self, pipe: IO[bytes]) -> Snapshot | CommandError | None:
        """The snapshot or the error that the child reports; None if the child died."""
        while line := pipe.readline(MAX_BYTES):
            try:
                message: dict[str, Any] = json.loads(line)
            except ValueError:
                return None  # a part of a line: the child died while it wrote
            if message["event"] == "progress":
                seconds = time.monotonic() - self._started_at
                self.inbox.put(Progress(message["read_bytes"], self.size_bytes, seconds))
            elif message["event"] == "refused":
                return _unreadable(self.name, safe_text(message["reason"]))
            else:
                return decode(message["snapshot"])
        return None

    def _error(self, code: int, stderr: bytes) -> CommandError:
        """The error for a child that ended without a result."""
        if self._is_cancelled:
            return CommandError(
                Problem(ProblemCode.NOT_READ, f"Reading {self.name} was cancelled."), ExitCode.BAD_VERDICT
            )
        if code == -signal.SIGXCPU or self._has_timed_out:
            return _unreadable(self.name, f"takes longer to read than {self._deadline_seconds} s")
        if code < 0:
            cause = f"signal {-code} ended the reader, perhaps because memory ran out"
        else:
            lines = stderr.strip().splitlines()
            cause = safe_bytes(lines[-1], 200) if lines else f"exit code {code}"
        return _unreadable(self.name, f"could not be read: {cause}")


def read(path: Path, largest: int = 0) -> Snapshot:
    """Read a file and wait for the result.

    Raises:
        CommandError: The file does not exist or cannot be read.
    """
    return read_to_end(SnapshotReader(path, largest))


def read_to_end(reader: SnapshotReader) -> Snapshot:
    """Start a reader and wait for its result.

    Raises:
        CommandError: The file cannot be read.
    """
    reader.start()
    try:
        while reader.outcome is None:
            reader.inbox.arrived.wait()
            reader.inbox.drain()
    except BaseException:
        reader.cancel()
        raise
    if isinstance(reader.outcome, CommandError):
        raise reader.outcome
    return reader.outcome


def _open(path: Path) -> int:
    name = safe_text(str(path), 200)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # does not block on a pipe
    except FileNotFoundError:
        problem = Problem(ProblemCode.NOT_FOUND, f"File not found: {name}.", _REMEDY)
        raise CommandError(problem, ExitCode.MISSING_PREREQUISITE) from None
    except (OSError, ValueError) as error:
        raise _unreadable(name, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _unreadable(name, "is not a regular file")
    return descriptor


def _unreadable(name: str, clause: str) -> CommandError:
    return CommandError(Problem(ProblemCode.INVALID_VALUE, f"{name} {clause}.", _REMEDY), ExitCode.USAGE)


def _available_bytes() -> int | None:
    """Memory that is available without swapping, or None if the kernel does not report it."""
    with suppress(OSError, ValueError, IndexError):
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return None
