"""Where a log comes from: a file, a compressed one, or a pipe, read in pieces."""

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

_PIECE_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 1 << 13
_GZIP_MAGIC: Final = b"\x1f\x8b"


def open_log(path: Path) -> io.BufferedReader:
    """Opens a log.

    Raises:
        CommandError: It is not there, is a directory or may not be read.
    """
    try:
        return io.BufferedReader(io.FileIO(path))
    except OSError as error:
        raise _unreadable(str(path), error) from None


def log_pieces(file: io.BufferedReader, name: str) -> Iterator[bytes]:
    """The bytes of a log, decompressed if it is compressed; one whose end is missing is read as far as it goes.

    Args:
        file: Where it is read from; a terminal ends it with a single Ctrl-D.
        name: What it is called in a complaint.

    Raises:
        CommandError: It cannot be read, or is no text.
    """
    try:
        packed = file.peek(2)[:2] == _GZIP_MAGIC
        source: io.BufferedReader | gzip.GzipFile = gzip.GzipFile(fileobj=file) if packed else file
        piece = source.read1(_PIECE_BYTES)
        if b"\0" in piece[:_HEAD_BYTES].strip(b"\0"):  # a log that was cut while it was written to may begin with zeros
            raise _no_text(name)
        while piece:
            yield piece
            piece = source.read1(_PIECE_BYTES)
    except EOFError:
        return
    except (OSError, zlib.error) as error:
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: Exception) -> CommandError:
    code = ProblemCode.DAMAGED
    why = "its compressed data is damaged"
    if isinstance(error, OSError) and error.errno is not None:
        code = ProblemCode.UNKNOWN
        why = os.strerror(error.errno).lower()
    if isinstance(error, FileNotFoundError):
        code = ProblemCode.NOT_FOUND
    elif isinstance(error, PermissionError):
        code = ProblemCode.NO_PERMISSION
    reason = f"{safe_text(name)} cannot be read: {why}."
    return CommandError(Problem(code, reason, "Give the name of a log, or - for standard input."), ExitCode.USAGE)


def _no_text(name: str) -> CommandError:
    reason = f"{safe_text(name)} is not text."
    return CommandError(Problem(ProblemCode.INVALID_VALUE, reason, "Give the name of a log."), ExitCode.USAGE)
