"""Files that the user names: opening them without waiting for a pipe, and decompressing them up to a limit."""

import errno
import gzip
import io
import os
import select
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

_GZIP_MAGIC: Final = b"\x1f\x8b"
_PEEK_BYTES: Final = 64
_BUFFER_BYTES: Final = 1 << 20
_MIN_EXPANDED_BYTES: Final = 64 << 20
"""Any file may expand to this."""
_WRITER_SECONDS: Final = 2.0
STANDARD_INPUT: Final = Path("/dev/stdin")


class UnreadableError(Exception):
    """The file cannot be read. The message is a clause that follows the name of the file."""


class ExpansionError(UnreadableError):
    """The file expands to much more than an ordinary file of its size: it was made to take memory or time."""


def open_input(path: Path) -> io.FileIO:
    """Open a file or a pipe that a process writes to, such as ``<(command)`` of the shell.

    Raises:
        OSError: It cannot be opened, or it is a pipe without a writer or a device, which may never end.
    """
    if path == STANDARD_INPUT:
        return io.FileIO(path)
    file = io.FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY))
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode) and not (stat.S_ISFIFO(mode) and _has_writer(file.fileno())):
        file.close()
        reason = "no process writes to this pipe" if stat.S_ISFIFO(mode) else "it is not a regular file"
        raise OSError(errno.EINVAL, reason)
    os.set_blocking(file.fileno(), True)
    return file


def _has_writer(pipe: int) -> bool:
    """Whether a process has a pipe open for writing, after a short time to open it."""
    if select.select([pipe], [], [], _WRITER_SECONDS)[0]:
        return True
    try:
        return bool(os.read(pipe, 1))  # there is nothing to read: without a writer, this is the end
    except BlockingIOError:
        return True


class Readable(Protocol):
    """A file or pipe."""

    def read(self, size: int, /) -> bytes:
        """Read the next bytes; empty at the end."""


class BoundedGzipFile(gzip.GzipFile):
    """The decompressed bytes of a file or pipe. Reading raises `ExpansionError` where it expands to too much.

    Args:
        file: The compressed file.
        max_expansion: How many times its size it may expand to.
    """

    def __init__(self, file: Readable, max_expansion: int) -> None:
        self._compressed = _CountedFile(file)
        self._max_expansion = max_expansion
        self._expanded_bytes = 0
        super().__init__(fileobj=self._compressed, mode="rb")  # type: ignore[call-overload] # it needs only read

    def read(self, size: int | None = -1) -> bytes:
        """Read the next bytes."""
        return self._checked(super().read(size))

    def read1(self, size: int = -1) -> bytes:
        """Read some of the next bytes."""
        return self._checked(super().read1(size))

    def _checked(self, data: bytes) -> bytes:
        self._expanded_bytes += len(data)
        if self._expanded_bytes > _MIN_EXPANDED_BYTES + self._max_expansion * self._compressed.read_bytes:
            raise ExpansionError(f"expands to more than {self._max_expansion} times its size")
        return data


class _CountedFile:
    """Counts what is read from a file, which may be a pipe."""

    def __init__(self, file: Readable) -> None:
        self.read_bytes = 0
        self._file = file

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.read_bytes += len(data)
        return data


class SourceFile:
    """An open file.

    Args:
        descriptor: Its descriptor.
        max_expansion: How many times its size it may expand to if it is compressed.
    """

    def __init__(self, descriptor: int, max_expansion: int) -> None:
        self._raw = io.FileIO(descriptor, closefd=False)
        self.size_bytes = os.fstat(descriptor).st_size
        file = io.BufferedReader(self._raw, _BUFFER_BYTES)
        is_compressed = file.peek(2)[:2] == _GZIP_MAGIC
        self._source = io.BufferedReader(BoundedGzipFile(file, max_expansion), _BUFFER_BYTES) if is_compressed else file

    @property
    def read_bytes(self) -> int:
        """How many bytes of the file on disk were read."""
        return self._raw.tell()

    def peek(self) -> bytes:
        """The first bytes, decompressed, without consuming them."""
        return self._guarded(lambda: self._source.peek(_PEEK_BYTES)[:_PEEK_BYTES])

    def read(self, size: int) -> bytes:
        """Read the next bytes, decompressed.

        Raises:
            UnreadableError: The file cannot be read or is damaged.
        """
        return self._guarded(lambda: self._source.read(size))

    def _guarded(self, read: Callable[[], bytes]) -> bytes:
        try:
            return read()
        except EOFError:
            raise UnreadableError("is truncated: its compressed data has no end") from None
        except (zlib.error, gzip.BadGzipFile):
            raise UnreadableError("is damaged: its compressed data is invalid") from None
        except OSError as error:
            raise UnreadableError(f"cannot be read: {os.strerror(error.errno or 0).lower()}") from None
