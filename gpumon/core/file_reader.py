"""Reads a file in a child process with resource limits; reports its progress and can be cancelled at any time."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, Generic, NamedTuple, TypeVar

from gpumon.core.inbox import Inbox
from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.procfs import read_meminfo
from gpumon.core.state_file import open_regular
from gpumon.core.text import safe_bytes, safe_text

ResultT = TypeVar("ResultT")

_MAX_STDERR_BYTES: Final = 1 << 16
_MAX_AVAILABLE_SHARE: Final = 0.75
_GZIP_MAGIC: Final = b"\x1f\x8b"


class Progress(NamedTuple):
    """The progress of a reader.

    Attributes:
        read_bytes: Bytes of the file that were read.
        size_bytes: The size of the file.
        seconds: Time since the start.
        counts: What the reader has found so far.
    """

    read_bytes: int
    size_bytes: int
    seconds: float
    counts: tuple[tuple[str, int], ...] = ()


_Show = Callable[[Progress], None]


class ReaderLimits(NamedTuple):
    """What a child may use; a compressed file counts as if it were expanded.

    Attributes:
        min_memory_bytes: Memory that it may always use, as far as the host has it.
        memory_per_file_byte: Memory that each byte of the file adds.
        min_seconds: CPU time that it may always use.
        bytes_per_second: Bytes of the file that add a second.
        compression_ratio: Assumed for a compressed file.
    """

    min_memory_bytes: int
    memory_per_file_byte: float
    min_seconds: int
    bytes_per_second: int
    compression_ratio: int


class FileReader(ABC, Generic[ResultT]):
    """Reads one file.

    Args:
        path: The file.
        limits: The limits of the child.
        remedy: What the user can do about a file that cannot be read.
        max_line_bytes: Maximum size of a message of the child.

    Attributes:
        inbox: Receives the progress; rings without an item when `outcome` is set.
        outcome: The result or the error, or None while the file is being read.
        name: The path of the file as safe text.

    Raises:
        CommandError: The file does not exist or cannot be opened.
    """

    def __init__(self, path: Path, limits: ReaderLimits, remedy: str, max_line_bytes: int) -> None:
        self.inbox: Inbox[Progress] = Inbox(size=4)
        self.outcome: ResultT | CommandError | None = None
        self.name = safe_text(str(path), 200)
        self._remedy = remedy
        self._max_line_bytes = max_line_bytes
        self._file = self._open(path)
        self.size_bytes = os.fstat(self._file).st_size
        self._started_at = time.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cancelled = False
        is_compressed = os.pread(self._file, 2, 0) == _GZIP_MAGIC
        expanded = self.size_bytes * (limits.compression_ratio if is_compressed else 1)
        self._cpu_seconds = limits.min_seconds + expanded // limits.bytes_per_second
        self._memory_bytes = limits.min_memory_bytes + int(expanded * limits.memory_per_file_byte)

    @abstractmethod
    def script(self) -> Path:
        """The program of the child, whose standard input is the file."""

    @abstractmethod
    def decode(self, message: dict[str, Any]) -> ResultT:
        """Convert the last message of the child."""

    def arguments(self) -> list[str]:
        """The arguments of the child."""
        available = _available_bytes()
        memory = self._memory_bytes
        if available is not None:
            memory = min(memory, int(available * _MAX_AVAILABLE_SHARE))
        return [f"--name={self.name}", f"--memory={memory}", f"--seconds={self._cpu_seconds}"]

    def descriptors(self) -> tuple[int, ...]:
        """Further descriptors that the child inherits; they stay open here."""
        return ()

    def start(self) -> None:
        """Start the child process.

        Raises:
            CommandError: The system cannot start a process.
        """
        self._started_at = time.monotonic()
        try:
            self._process = subprocess.Popen(
                [sys.executable, str(self.script()), *self.arguments()],
                stdin=self._file,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=self.descriptors(),
                start_new_session=True,
            )
        except OSError as error:
            raise self._unreadable(f"cannot be read: gpumon cannot start a process ({error.strerror})") from None
        finally:
            os.close(self._file)
        threading.Thread(target=self._follow, args=(self._process,), name="gpumon-reader", daemon=True).start()

    def cancel(self) -> None:
        """Stop reader."""
        self._is_cancelled = True
        if self._process is not None:
            with suppress(OSError):
                self._process.kill()

    @property
    def progress(self) -> Progress:
        """The progress before the first byte was read."""
        return Progress(0, self.size_bytes, time.monotonic() - self._started_at)

    def _follow(self, process: "subprocess.Popen[bytes]") -> None:
        """Read the messages of the child until it ends."""
        assert process.stdout is not None
        assert process.stderr is not None
        outcome, stderr = None, b""
        try:
            outcome = self._outcome(process.stdout)
            stderr = b"" if outcome is not None else process.stderr.read(_MAX_STDERR_BYTES)
        finally:
            process.kill()
            code = process.wait()
            process.stdout.close()
            process.stderr.close()
            self.outcome = outcome or self._error(code, stderr)
            self.inbox.ring()

    def _outcome(self, pipe: IO[bytes]) -> ResultT | CommandError | None:
        """The result or the error that the child reports; None if the child died."""
        while line := pipe.readline(self._max_line_bytes):
            try:
                message: dict[str, Any] = json.loads(line)
            except ValueError:
                return None  # a part of a line: the child died while it wrote
            if message["event"] == "progress":
                seconds = time.monotonic() - self._started_at
                counts = tuple((str(name), int(count)) for name, count in message.get("counts", ()))
                self.inbox.put(Progress(message["read_bytes"], self.size_bytes, seconds, counts))
            elif message["event"] == "refused":
                return self._unreadable(safe_text(message["reason"]))
            else:
                return self.decode(message)
        return None

    def _error(self, code: int, stderr: bytes) -> CommandError:
        """The error for a child that ended without a result."""
        if self._is_cancelled:
            return CommandError.failure(ProblemCode.NOT_READ, f"Reading {self.name} was cancelled.")
        if code == -signal.SIGXCPU:
            return self._unreadable(f"takes longer to read than {self._cpu_seconds} s of CPU time")
        if code < 0:
            cause = f"signal {-code} ended the reader, perhaps because memory ran out"
        else:
            lines = stderr.strip().splitlines()
            cause = safe_bytes(lines[-1], 200) if lines else f"exit code {code}"
        return self._unreadable(f"could not be read: {cause}")

    def _open(self, path: Path) -> int:
        try:
            return open_regular(path, os.O_RDONLY)
        except FileNotFoundError:
            raise CommandError.missing(ProblemCode.NOT_FOUND, f"File not found: {self.name}.", self._remedy) from None
        except (OSError, ValueError) as error:
            raise self._unreadable(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None

    def _unreadable(self, clause: str) -> CommandError:
        return CommandError.usage(ProblemCode.INVALID_VALUE, f"{self.name} {clause}.", self._remedy)


def read_to_end(reader: FileReader[ResultT], show: _Show = lambda _: None) -> ResultT:
    """Read one file, as `read_all` does; raises the same."""
    return read_all([reader], show)[0]


def read_all(readers: Sequence[FileReader[ResultT]], show: _Show = lambda _: None) -> list[ResultT]:
    """Start readers, all at the same time, and wait for their results; ``show`` receives the progress.

    Raises:
        CommandError: A file cannot be read.
    """
    try:
        for reader in readers:
            reader.start()
        return [_result(reader, show) for reader in readers]
    except BaseException:
        for reader in readers:
            reader.cancel()
        raise


def _result(reader: FileReader[ResultT], show: _Show) -> ResultT:
    while reader.outcome is None:
        reader.inbox.arrived.wait()
        for progress in reader.inbox.drain():
            show(progress)
    if isinstance(reader.outcome, CommandError):
        raise reader.outcome
    return reader.outcome


def _available_bytes() -> int | None:
    """Memory that is available without swapping, or None if the kernel does not report it."""
    with suppress(OSError):
        return read_meminfo().get("MemAvailable")
    return None
