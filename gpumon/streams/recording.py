"""Recordings: files with one frame per line, plain or compressed.

A recording is readable at every moment while it is written, and is read in constant memory.
"""

import contextlib
import errno
import io
import os
import select
import stat
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from gpumon.core.frames import MAX_LINE_BYTES, encode
from gpumon.core.model import Frame
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.source_file import open_input
from gpumon.core.text import safe_text
from gpumon.streams.lines import FrameLines, Line, Record

INDEX_LINES: Final = 64
SCAN_BYTES: Final = 64 << 20
_GZIP_WINDOW: Final = 31
_BUFFER_BYTES: Final = 1 << 16


class RecordingWriter:
    """Writes frames so that every complete one can be read, whatever ends the writing.

    Args:
        target: A path, or an open binary file. The recording is compressed if the path ends in ``.gz``.
        folder: Descriptor of an open folder that a relative path starts from, or None for the current folder.
        level: How hard to compress, from 1 to 9.

    Raises:
        CommandError: The file cannot be created, or is not empty.
    """

    def __init__(self, target: Path | BinaryIO, folder: int | None = None, level: int = 6) -> None:
        self._compressor = None
        self._is_owned = isinstance(target, Path)
        self._complete_bytes = 0
        if isinstance(target, Path):
            self.name = safe_text(str(target))
            self._file: BinaryIO | io.FileIO = _create(target, self.name, folder)
            if target.name.endswith(".gz"):
                self._compressor = zlib.compressobj(level, wbits=_GZIP_WINDOW)
        else:
            self.name = "standard output"
            self._file = target
        self._had_name = self._is_owned and _has_name(self._file)  # some file systems do not count links

    def set_mode(self, mode: int) -> None:
        """Set who may read the file, whatever the umask."""
        os.fchmod(self._file.fileno(), mode)

    def write(self, frame: Frame) -> None:
        """Add a frame, as `write_line` does; raises the same."""
        self.write_line(encode(frame).encode() + b"\n")

    def write_line(self, data: bytes) -> None:
        """Add a line, or several.

        If anything interrupts the write, even a signal, the file is truncated to the previous line.

        Raises:
            CommandError: The disk is full, or the file was removed or is no longer writable.
            BrokenPipeError: The reader of the pipe is gone.
        """
        if self._had_name and not _has_name(self._file):
            reason = f"The recording {self.name} ended early: its file was removed."
            raise CommandError.failure(ProblemCode.NOT_FOUND, reason)
        before = None if self._compressor is None else self._compressor.copy()
        try:
            if self._compressor is not None:
                data = self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
            self._write_all(data)
        except BaseException as error:
            self._compressor = before
            self._truncate()
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                raise _write_error(error, self.name) from None
            raise

    def sync(self) -> None:
        """Write to the disk what the kernel holds of the file: a host that loses power keeps everything before this.

        Raises:
            CommandError: The disk is full or fails.
        """
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise _write_error(error, self.name) from None

    def is_reader_gone(self) -> bool:
        """Whether the reader of the pipe is gone."""
        try:
            poll = select.poll()
            poll.register(self._file, 0)
        except OSError:
            return False
        return bool(poll.poll(0))

    def close(self) -> None:
        """Complete and close the file."""
        if self._file.closed or not self._is_owned:
            return
        try:
            if self._compressor is not None:
                self._write_all(self._compressor.flush(zlib.Z_FINISH))
        except OSError:
            self._truncate()
        finally:
            self._file.close()

    def _write_all(self, data: bytes) -> None:
        remaining = memoryview(data)
        while remaining:
            written = self._file.write(remaining)
            if written is None:  # the other side made the pipe non-blocking
                select.select([], [self._file], [])
            remaining = remaining[written or 0 :]
        self._file.flush()
        self._complete_bytes += len(data)

    def _truncate(self) -> None:
        if self._is_owned:
            with contextlib.suppress(OSError):  # a pipe or a device cannot be truncated
                self._file.truncate(self._complete_bytes)
                self._file.seek(self._complete_bytes)


_READ_REMEDY: Final = "Check the name and the permissions. A pipe is read as standard input, with -."


class RecordingReader:
    """Reads a recording sequentially, and can seek if the recording is a file and not a pipe.

    Args:
        path: The recording.

    Raises:
        CommandError: The recording cannot be opened, or contains no frame that this gpumon can read.
    """

    def __init__(self, path: Path) -> None:
        self.name = safe_text(str(path))
        file = _open(path, self.name)
        self.seekable = file.seekable()
        self.duration_seconds: float | None = None
        self._lines = FrameLines(file)
        self._pushed_back: Line | None = None
        self._unread: Record | None = None
        self._index_seconds = array("d", [0.0])
        self._index_offsets = array("q", [0])
        self._indexed_to = 0
        self._since_entry = 0
        try:
            self._unread = self._first()
        except BaseException:
            file.close()
            raise

    def __iter__(self) -> Iterator[Record]:
        while (record := self.read()) is not None:
            yield record

    @property
    def problem(self) -> Problem | None:
        """What could not be read so far, or None."""
        return self._lines.problem

    def read(self) -> Record | None:
        """Read the next frame; None at the end."""
        if self._unread is not None:
            unread, self._unread = self._unread, None
            return unread
        while (line := self._next_line()) is not None:
            record = self._lines.decode(line)
            if record is not None:
                return record
        return None

    def window(self, start: float, end: float, step: float, stop: Callable[[], bool]) -> Iterator[Record]:
        """Seek and yield the frames from ``start`` to ``end``; `read` continues with the frame after them.

        Args:
            start: Recorded seconds since the first frame.
            end: The last frame at or before this time is always yielded, even if it is before ``start``.
            step: Minimum time between two frames, in seconds.
            stop: Called often; returning True ends the iteration at an undefined position.
        """
        self._move(start)
        due = start
        skipped: Line | None = None
        while (line := self._next_line()) is not None and line.seconds <= end and not stop():
            record = None if line.seconds < due else self._lines.decode(line)
            if record is None:
                skipped = line
                continue
            skipped = None
            due = line.seconds + step
            yield record
        self._pushed_back = line
        last = None if skipped is None else self._lines.decode(skipped)
        if last is not None:
            yield last

    def scan(self, stop: Callable[[], bool], limit: int = SCAN_BYTES) -> None:
        """Determine the duration if the recording has at most ``limit`` bytes; the position does not change."""
        if not self.seekable:
            return
        pushed_back, self._pushed_back = self._pushed_back, None
        (seconds, offset), clock = self._lines.position, self._lines.clock
        while not stop() and self._lines.position[1] <= limit and self._next_line() is not None:
            pass
        self._lines.seek(seconds, offset, clock)
        self._pushed_back = pushed_back

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def _first(self) -> Record:
        """Read the first frame, which must begin within the maximum length of a line."""
        while self._lines.position[1] <= MAX_LINE_BYTES and (line := self._next_line()) is not None:
            record = self._lines.decode(line)
            if record is not None:
                return record
        problem = self._lines.problem
        if problem is None or problem.code is not ProblemCode.NEWER_SCHEMA:
            problem = Problem(
                ProblemCode.DAMAGED,
                f"{self.name} is not a recording: it contains no frame.",
                "Create a recording with: gpumon record FILE",
            )
        raise CommandError(problem, ExitCode.USAGE)

    def _next_line(self) -> Line | None:
        if self._pushed_back is not None:
            pushed_back, self._pushed_back = self._pushed_back, None
            return pushed_back
        line = self._lines.next_line()
        if line is None:
            self.duration_seconds = max(self.duration_seconds or 0.0, self._lines.position[0])
        elif line.offset >= self._indexed_to:
            self._indexed_to = line.offset + 1
            self._since_entry += 1
            if self._since_entry >= INDEX_LINES:
                self._since_entry = 0
                self._index_seconds.append(line.seconds)
                self._index_offsets.append(line.offset)
        return line

    def _move(self, seconds: float) -> None:
        """Move to an indexed line before ``seconds``, or to the first line."""
        entry = max(0, bisect_left(self._index_seconds, seconds) - 1)
        self._pushed_back = self._unread = None
        self._lines.seek(self._index_seconds[entry], self._index_offsets[entry])


def _has_name(file: BinaryIO | io.FileIO) -> bool:
    """Whether the file still has a name in a directory."""
    return os.fstat(file.fileno()).st_nlink > 0


def _create(path: Path, name: str, folder: int | None) -> io.FileIO:
    """Create the file; a file that is not empty is refused, since a recording cannot be repeated."""
    try:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            return io.FileIO(os.open(path, flags, 0o666, dir_fd=folder), "w")
        except FileExistsError:
            file = io.FileIO(os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder), "w")
    except OSError as error:
        raise _write_error(error, name) from None
    status = os.fstat(file.fileno())  # of the open file: another user may replace the one at the path
    if stat.S_ISREG(status.st_mode) and status.st_size:
        file.close()
        raise CommandError.usage(ProblemCode.INVALID_VALUE, f"{name} already exists.", "Use another name.")
    return file


def _open(path: Path, name: str) -> io.BufferedReader:
    try:
        file: io.BufferedReader = io.BufferedReader(open_input(path), _BUFFER_BYTES)
        file.peek(1)
    except OSError as error:
        raise CommandError(_file_problem(error, f"{name} cannot be read", _READ_REMEDY), ExitCode.USAGE) from None
    return file


def _write_error(error: OSError, name: str) -> CommandError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        remedy = "The frames recorded so far can be replayed. Free some space, or record to another disk."
        return CommandError(_file_problem(error, f"The recording {name} ended early", remedy), ExitCode.BAD_VERDICT)
    return CommandError(
        _file_problem(error, f"{name} cannot be written", "Choose another location for the recording."), ExitCode.USAGE
    )


def _file_problem(error: OSError, what: str, remedy: str) -> Problem:
    code = ProblemCode.UNKNOWN
    if isinstance(error, FileNotFoundError):
        code = ProblemCode.NOT_FOUND
    elif isinstance(error, PermissionError):
        code = ProblemCode.NO_PERMISSION
    return Problem(code, f"{what}: {(error.strerror or 'unknown error').lower()}.", remedy)
