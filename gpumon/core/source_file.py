"""A file that a child reads, uncompressed or compressed with gzip."""

import gzip
import io
import os
import zlib
from collections.abc import Callable
from typing import Final

_GZIP_MAGIC: Final = b"\x1f\x8b"
_PEEK_BYTES: Final = 64
_BUFFER_BYTES: Final = 1 << 20


class UnreadableError(Exception):
    """The file cannot be read. The message is a clause that follows the name of the file."""


class SourceFile:
    """An open file.

    Args:
        descriptor: Its descriptor.
    """

    def __init__(self, descriptor: int) -> None:
        self._raw = io.FileIO(descriptor, closefd=False)
        self.size_bytes = os.fstat(descriptor).st_size
        file = io.BufferedReader(self._raw, _BUFFER_BYTES)
        is_compressed = file.peek(2)[:2] == _GZIP_MAGIC
        self._source = io.BufferedReader(gzip.GzipFile(fileobj=file), _BUFFER_BYTES) if is_compressed else file

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
