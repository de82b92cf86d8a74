"""Lines of frames from a file or a pipe, plain or compressed, on a time line of their own.

Nothing here trusts what it reads: a line is never held beyond its limit, and one that is torn, foreign or damaged is
passed over and counted. The time of a line is taken from its text, so that passing over it costs no decoding.
"""

import gzip
import io
import re
import zlib
from typing import Final, NamedTuple

from gpumon.core.frames import MAX_LINE_BYTES, FrameError, decode
from gpumon.core.model import Frame
from gpumon.core.problems import Problem, ProblemCode

_GZIP_MAGIC: Final = b"\x1f\x8b"
MOST_PASSED_BYTES: Final = 256 << 20
"""A line that does not end within so many bytes is the end: looking for more could take minutes."""
_CHUNK_BYTES: Final = 1 << 20
_BEGINNING_BYTES: Final = 200
_MONOTONIC: Final = re.compile(rb'"monotonic_seconds":\s{0,8}(-?\d{1,12}(?:\.\d{1,9})?)')


class Line(NamedTuple):
    """One line.

    Attributes:
        seconds: Recorded time since the first line.
        offset: Where it starts, in bytes of the uncompressed text.
        data: The line, or its beginning if it is too long to be one of ours.
    """

    seconds: float
    offset: int
    data: bytes


class Record(NamedTuple):
    """A frame and its recorded time since the first line."""

    seconds: float
    frame: Frame


class FrameLines:
    """Reads lines one after the other.

    Where recordings were joined, the clock may run backwards; the time line then goes on from where it was.

    Args:
        file: A file or pipe; it is compressed if it begins as gzip does.
    """

    def __init__(self, file: io.BufferedReader) -> None:
        packed = file.peek(2)[:2] == _GZIP_MAGIC
        self._file = file
        self._source: io.BufferedReader | gzip.GzipFile = gzip.GzipFile(fileobj=file) if packed else file
        self._offset = 0
        self._overlong = False
        self._seconds = 0.0
        self._clock: float | None = None
        self._counted_to = 0
        self._damaged = 0
        self._first_damaged = 0
        self._newer: Problem | None = None
        self._cut: Problem | None = None

    @property
    def problem(self) -> Problem | None:
        """What could not be read so far."""
        if self._newer is not None:
            return self._newer
        if not self._damaged:
            return self._cut
        lines = "1 damaged line was" if self._damaged == 1 else f"{self._damaged} damaged lines were"
        reason = f"{lines} skipped, the first at byte {self._first_damaged}."
        return Problem(ProblemCode.DAMAGED, reason if self._cut is None else f"{reason} {self._cut.reason}")

    @property
    def place(self) -> tuple[float, int]:
        """Time and offset of the next line, as `go_to` takes them; the time is the last line's."""
        return self._seconds, self._offset

    def next_line(self) -> Line | None:
        """The next line that is not empty, or None at the end of what can be read."""
        while True:
            offset = self._offset
            data = self._read_line()
            if not data:
                return None
            stripped = data.strip()
            if not stripped:
                continue
            found = _MONOTONIC.search(data)
            if found is not None:
                clock = float(found[1])
                self._seconds += max(0.0, clock - (clock if self._clock is None else self._clock))
                self._clock = clock
            return Line(self._seconds, offset, stripped)

    def decode(self, line: Line) -> Record | None:
        """The frame in a line, or None, which is counted once however often the line is read."""
        try:
            return Record(line.seconds, decode(line.data))
        except FrameError as error:
            self._count(line.offset, error.problem)
            return None

    def go_to(self, seconds: float, offset: int, clock: float | None = None) -> None:
        """Moves to a line whose place is known."""
        try:
            self._source.seek(offset)
        except (OSError, EOFError, zlib.error) as error:
            self._note_cut(error)
        self._seconds, self._offset, self._clock = seconds, offset, clock
        self._overlong = False

    @property
    def clock(self) -> float | None:
        """The recorded clock of the last line."""
        return self._clock

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _read_line(self) -> bytes:
        """The next line with its end; empty at the end of what can be read. Of an overlong one only the beginning."""
        try:
            if self._overlong and not self._pass_over():
                return b""
            data = self._source.readline(MAX_LINE_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            self._note_cut(error)
            return b""
        self._offset += len(data)
        if len(data) <= MAX_LINE_BYTES:
            return data
        self._overlong = not data.endswith(b"\n")
        return data[:_BEGINNING_BYTES]

    def _pass_over(self) -> bool:
        """Reads on to the end of an overlong line; false where none comes, as in a file with a hole in it."""
        limit = self._offset + MOST_PASSED_BYTES
        while self._offset < limit:
            rest = self._source.readline(_CHUNK_BYTES)
            self._offset += len(rest)
            if not rest or rest.endswith(b"\n"):
                self._overlong = False
                return True
        reason = f"Nothing can be read after byte {limit - MOST_PASSED_BYTES}: no line ends there."
        self._cut = Problem(ProblemCode.DAMAGED, reason)
        return False

    def _count(self, offset: int, problem: Problem) -> None:
        if problem.code is ProblemCode.NEWER_SCHEMA:
            self._newer = self._newer or problem
        if offset < self._counted_to:
            return
        self._counted_to = offset + 1
        if not self._damaged:
            self._first_damaged = offset
        self._damaged += 1

    def _note_cut(self, error: Exception) -> None:
        if isinstance(error, EOFError):
            reason = f"The recording was cut off; it can be read up to byte {self._offset}."
        elif isinstance(error, (zlib.error, gzip.BadGzipFile)):
            reason = f"The compressed file is damaged; it can be read up to byte {self._offset}."
        else:
            reason = f"Nothing can be read after byte {self._offset}: {error}."
        self._cut = Problem(ProblemCode.DAMAGED, reason)
