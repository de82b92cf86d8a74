"""Recordings: files of frames, one a line, plain or compressed.

They are written so that they are whole at every moment, and read in constant memory.
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

from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.frames import MAX_LINE_BYTES, encode
from gpumon.core.model import Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.streams.lines import FrameLines, Line, Record

INDEX_LINES: Final = 64
SCAN_BYTES: Final = 64 << 20
_GZIP_WINDOW: Final = 31
_BUFFER_BYTES: Final = 1 << 16
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class RecordingWriter:
    """Writes frames so that every whole one can be read, whatever ends the writing.

    Args:
        target: A path, compressed if it ends in ``.gz``, or an open binary file.

    Raises:
        CommandError: The file cannot be made, or holds something already.
    """

    def __init__(self, target: Path | BinaryIO) -> None:
        self._compressor = None
        self._owned = isinstance(target, Path)
        self._whole_bytes = 0
        if isinstance(target, Path):
            self.name = safe_text(str(target))
            self._file: BinaryIO | io.FileIO = _create(target, self.name)
            if target.name.endswith(".gz"):
                self._compressor = zlib.compressobj(wbits=_GZIP_WINDOW)
        else:
            self.name = "standard output"
            self._file = target
        self._had_name = self._owned and _has_name(self._file)  # some file systems never count them

    def write(self, frame: Frame) -> None:
        """Adds a frame. If anything ends this half-way, a signal included, the file is cut back to the frame before.

        Raises:
            CommandError: The disk is full, the file was removed, or it cannot be written any more.
            BrokenPipeError: Whoever read the other end is gone.
        """
        if self._had_name and not _has_name(self._file):
            reason = f"The recording {self.name} ended early: its file was removed."
            raise CommandError(Problem(ProblemCode.NOT_FOUND, reason), ExitCode.BAD_VERDICT)
        data = encode(frame).encode() + b"\n"
        before = None if self._compressor is None else self._compressor.copy()
        try:
            if self._compressor is not None:
                data = self._compressor.compress(data) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
            self._put(data)
        except BaseException as error:
            self._compressor = before
            self._cut_back()
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                raise _write_error(error, self.name) from None
            raise

    def reader_gone(self) -> bool:
        """Whether nobody reads the other end of a pipe any more."""
        try:
            poll = select.poll()
            poll.register(self._file, 0)
        except OSError:
            return False
        return bool(poll.poll(0))

    def close(self) -> None:
        """Ends the file."""
        if self._file.closed or not self._owned:
            return
        try:
            if self._compressor is not None:
                self._put(self._compressor.flush(zlib.Z_FINISH))
        except OSError:
            self._cut_back()
        finally:
            self._file.close()

    def _put(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            written = self._file.write(left)
            if written is None:  # the other end has made the pipe one that does not wait
                select.select([], [self._file], [])
            left = left[written or 0 :]
        self._file.flush()
        self._whole_bytes += len(data)

    def _cut_back(self) -> None:
        if self._owned:
            with contextlib.suppress(OSError):  # a pipe or a device: what is torn there stays so
                self._file.truncate(self._whole_bytes)
                self._file.seek(self._whole_bytes)


class RecordingReader:
    """Reads a recording forwards, and moves in it if it is a file and not a pipe.

    Args:
        path: The recording.

    Raises:
        CommandError: It cannot be opened, or holds no frame that this gpumon can read.
    """

    def __init__(self, path: Path) -> None:
        self.name = safe_text(str(path))
        file = _open(path, self.name)
        self.seekable = file.seekable()
        self.duration_seconds: float | None = None
        self._lines = FrameLines(file)
        self._held: Line | None = None
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
        """What could not be read so far."""
        return self._lines.problem

    def read(self) -> Record | None:
        """The next frame, or None at the end."""
        if self._unread is not None:
            record, self._unread = self._unread, None
            return record
        while (line := self._next_line()) is not None:
            found = self._lines.decode(line)
            if found is not None:
                return found
        return None

    def window(self, start: float, end: float, step: float, stop: Callable[[], bool]) -> Iterator[Record]:
        """Moves: gives the frames from ``start`` to ``end``, and leaves the next one to `read`.

        Args:
            start: Recorded seconds since the first frame.
            end: The last frame at or before this time is always among them, even if it is before ``start``.
            step: At most one frame in so many seconds.
            stop: Asked often; true ends it, and the place is then anywhere.
        """
        self._move(start)
        wanted = start
        passed: Line | None = None
        while (line := self._next_line()) is not None and line.seconds <= end and not stop():
            record = None if line.seconds < wanted else self._lines.decode(line)
            if record is None:
                passed = line
                continue
            passed = None
            wanted = line.seconds + step
            yield record
        self._held = line
        last = None if passed is None else self._lines.decode(passed)
        if last is not None:
            yield last

    def scan(self, stop: Callable[[], bool], limit: int = SCAN_BYTES) -> None:
        """Finds out the duration if the recording is not longer than ``limit`` bytes, without moving."""
        if not self.seekable:
            return
        (seconds, offset), clock = self._lines.place, self._lines.clock
        while not stop() and self._lines.place[1] <= limit and self._next_line() is not None:
            pass
        self._lines.go_to(seconds, offset, clock)

    def close(self) -> None:
        """Closes the file."""
        self._lines.close()

    def _first(self) -> Record:
        """The first frame, looked for in as many bytes as a line may have."""
        while self._lines.place[1] <= MAX_LINE_BYTES and (line := self._next_line()) is not None:
            record = self._lines.decode(line)
            if record is not None:
                return record
        problem = self._lines.problem
        if problem is None or problem.code is not ProblemCode.NEWER_SCHEMA:
            problem = Problem(
                ProblemCode.DAMAGED,
                f"{self.name} is not a recording: there is no frame in it.",
                "Make one with: gpumon record FILE",
            )
        raise CommandError(problem, ExitCode.USAGE)

    def _next_line(self) -> Line | None:
        if self._held is not None:
            line, self._held = self._held, None
            return line
        found = self._lines.next_line()
        if found is None:
            self.duration_seconds = max(self.duration_seconds or 0.0, self._lines.place[0])
        elif found.offset >= self._indexed_to:
            self._indexed_to = found.offset + 1
            self._since_entry += 1
            if self._since_entry >= INDEX_LINES:
                self._since_entry = 0
                self._index_seconds.append(found.seconds)
                self._index_offsets.append(found.offset)
        return found

    def _move(self, seconds: float) -> None:
        """Moves to some line before ``seconds``, or to the first."""
        entry = max(0, bisect_left(self._index_seconds, seconds) - 1)
        self._held = self._unread = None
        self._lines.go_to(self._index_seconds[entry], self._index_offsets[entry])


def _has_name(file: BinaryIO | io.FileIO) -> bool:
    """Whether a file can still be found in a folder."""
    return os.fstat(file.fileno()).st_nlink > 0


def _create(path: Path, name: str) -> io.FileIO:
    """Makes the file; one that holds something is refused, as a recording cannot be made again."""
    try:
        try:
            return io.FileIO(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "w")
        except FileExistsError:
            found = path.stat()
        if stat.S_ISREG(found.st_mode) and found.st_size:
            raise CommandError(
                Problem(ProblemCode.INVALID_VALUE, f"{name} exists already.", "Choose another name or remove it."),
                ExitCode.USAGE,
            )
        return io.FileIO(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "w")
    except OSError as error:
        raise _write_error(error, name) from None


def _open(path: Path, name: str) -> io.BufferedReader:
    try:
        file: io.BufferedReader = io.BufferedReader(io.FileIO(path), _BUFFER_BYTES)
        file.peek(1)
    except OSError as error:
        raise CommandError(
            _file_problem(error, f"{name} cannot be read", "Check the name and its permissions."), ExitCode.USAGE
        ) from None
    return file


def _write_error(error: OSError, name: str) -> CommandError:
    if error.errno in _FULL:
        remedy = "What was recorded until now can be replayed. Make room, or record to another disk."
        return CommandError(_file_problem(error, f"The recording {name} ended early", remedy), ExitCode.BAD_VERDICT)
    return CommandError(
        _file_problem(error, f"{name} cannot be written", "Choose another place for the recording."), ExitCode.USAGE
    )


def _file_problem(error: OSError, what: str, remedy: str) -> Problem:
    code = ProblemCode.UNKNOWN
    if isinstance(error, FileNotFoundError):
        code = ProblemCode.NOT_FOUND
    elif isinstance(error, PermissionError):
        code = ProblemCode.NO_PERMISSION
    return Problem(code, f"{what}: {os.strerror(error.errno or 0).lower()}.", remedy)
