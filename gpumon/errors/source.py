"""Reads a log in chunks from a file, a gzip file or a pipe."""

import codecs
import io
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.source_file import BoundedGzipFile, ExpansionError, open_input
from gpumon.core.text import safe_text

_CHUNK_BYTES: Final = 1 << 20
_MAX_FILES: Final = 1024
_TEXT_BYTES: Final = bytes({0, *b"\a\b\t\n\f\r\x1b", *range(32, 127), *range(128, 256)})
_HEAD_BYTES: Final = 1 << 13
_GZIP_MAGIC: Final = b"\x1f\x8b"
_BYTE_ORDER_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""The start of UTF-16, in which PowerShell of Windows writes what is redirected to a file."""
_UTF_16: Final = codecs.getincrementaldecoder("utf-16")
_MAX_EXPANSION: Final = 100
"""Compressed logs expand to 5 to 20 times their size."""
_EXPANSION_REMEDY: Final = "If it is a log of yours, decompress it first: zcat LOG.gz | gpumon explain"


def log_files(paths: Sequence[Path]) -> list[Path]:
    """The files of some paths; of a folder, those in it and below it, in the order of their names.

    Raises:
        CommandError: A folder has no file, or too many.
    """
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        inside = sorted(item for item in path.rglob("*") if item.is_file())
        if not 0 < len(inside) <= _MAX_FILES:
            remedy = f"Give a folder with 1 to {_MAX_FILES:,} logs."
            raise _refused(str(path), f"has {len(inside):,} files", remedy)
        files += inside
    return files


def open_log(path: Path) -> io.BufferedReader:
    """Opens a log.

    Raises:
        CommandError: The file does not exist, is a directory or may not be read.
    """
    try:
        return io.BufferedReader(open_input(path))
    except OSError as error:
        raise _unreadable(str(path), error) from None


def log_pieces(file: io.BufferedReader, name: str) -> Iterator[bytes]:
    """The bytes of a log, decompressed if necessary; a truncated gzip file is read as far as possible.

    Args:
        file: The open log; on a terminal, a single Ctrl-D ends it.
        name: The name of the log in error messages.

    Raises:
        CommandError: The log cannot be read, or is not text.
    """
    try:
        is_gzip = file.peek(2)[:2] == _GZIP_MAGIC
        source = BoundedGzipFile(file, _MAX_EXPANSION) if is_gzip else file
        chunk = source.read1(_CHUNK_BYTES)
        decoder = _UTF_16("replace") if chunk.startswith(_BYTE_ORDER_MARKS) else None
        if decoder is None and _is_binary(chunk[:_HEAD_BYTES]):
            raise _refused(name, "is not text", "Give the name of a log.")
        while chunk:
            text = chunk if decoder is None else decoder.decode(chunk).encode("utf-8", "replace")
            yield text.replace(b"\0", b"")
            chunk = source.read1(_CHUNK_BYTES)
    except EOFError:
        return
    except (OSError, zlib.error) as error:
        raise _unreadable(name, error) from None
    except ExpansionError as error:
        raise _refused(name, str(error), _EXPANSION_REMEDY) from None


def _is_binary(head: bytes) -> bool:
    """Whether data with zeros is no text; a log has them where it was truncated, or where a host crashed."""
    unreadable = head.decode("utf-8", "replace").count("\ufffd") if b"\0" in head else 0
    return b"\0" in head and (bool(head.translate(None, _TEXT_BYTES)) or unreadable > len(head) // 50)


def _unreadable(name: str, error: Exception) -> CommandError:
    code, why = ProblemCode.DAMAGED, "its compressed data is damaged"
    if isinstance(error, OSError) and error.errno is not None:
        codes = {FileNotFoundError: ProblemCode.NOT_FOUND, PermissionError: ProblemCode.NO_PERMISSION}
        code, why = codes.get(type(error), ProblemCode.UNKNOWN), (error.strerror or "unknown error").lower()
    reason = f"{safe_text(name)} cannot be read: {why}."
    return CommandError(Problem(code, reason, "Give the name of a log, or - for standard input."), ExitCode.USAGE)


def _refused(name: str, why: str, remedy: str) -> CommandError:
    return CommandError(Problem(ProblemCode.INVALID_VALUE, f"{safe_text(name)} {why}.", remedy), ExitCode.USAGE)
