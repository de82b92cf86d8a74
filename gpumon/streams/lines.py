"""Lines of frames from a file or a pipe, plain or compressed, on a continuous timeline.

Input is not trusted: lines have a maximum length, and a line that is truncated, damaged or not a frame is skipped and
counted. The time of a line is read from its text by a regular expression, so that skipping a line costs no decoding.
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
MAX_SKIPPED_BYTES: Final = 256 << 20
"""If a line or a run of blank lines does not end within this many bytes, reading stops: a search for the end could take
minutes, because compressed data can be a thousand times smaller."""
MAX_FOREIGN_LINES: Final = 100_000
"""After this many consecutive lines that cannot be frames, reading stops."""
MAX_FRAME_VALUES: Final = 1 << 17
"""Maximum number of values and containers of a frame, enough for 10,000 processes. A line of ``{},`` would take 25
times its size in memory once decoded, and a screen with more processes would respond to no key for seconds."""
_CHUNK_BYTES: Final = 1 << 20
_HEAD_BYTES: Final = 200
_VALUE_STARTS: Final = (b",", b"{", b"[")
"""Every value of a JSON document follows one of these, or the colon after the first key of an object."""
_MONOTONIC: Final = re.compile(rb'"monotonic_seconds":\s{0,8}(-?\d{1,12}(?:\.\d{1,9})?)')


class Line(NamedTuple):
    """One line.

    Attributes:
        seconds: Recorded time since the first line.
        offset: Start of the line, in bytes of the uncompressed text.
        data: The line, or only its first bytes if the line is too long to be a frame.
    """

    seconds: float
    offset: int
    data: bytes


class Record(NamedTuple):
    """A frame and its recorded time since the first line, in seconds."""

    seconds: float
    frame: Frame


class FrameLines:
    """Reads lines in order.

    Where recordings were joined, the recorded clock may run backwards; the timeline then continues from where it was.

    Args:
        file: A file or pipe; compressed if the data starts with the gzip signature.
    """

    def __init__(self, file: io.BufferedReader) -> None:
        is_gzip = file.peek(2)[:2] == _GZIP_MAGIC
        self._file = file
        self._source: io.BufferedReader | gzip.GzipFile = gzip.GzipFile(fileobj=file) if is_gzip else file
        self._offset = 0
        self._is_overlong = False
        self._seconds = 0.0
        self._clock: float | None = None
        self._foreign = 0
        self._end: int | None = None
        self._counted_to = 0
        self._damaged = 0
        self._first_damaged = 0
        self._newer: Problem | None = None
        self._cut: Problem | None = None

    @property
    def problem(self) -> Problem | None:
        """What could not be read so far, or None."""
        if self._newer is not None:
            return self._newer
        if not self._damaged:
            return self._cut
        lines = "1 damaged line was" if self._damaged == 1 else f"{self._damaged} damaged lines were"
        reason = f"{lines} skipped, the first at byte {self._first_damaged}."
        return Problem(ProblemCode.DAMAGED, reason if self._cut is None else f"{reason} {self._cut.reason}")

    @property
    def position(self) -> tuple[float, int]:
        """Time and offset for `seek` to the next line; the time is that of the last line."""
        return self._seconds, self._offset

    def next_line(self) -> Line | None:
        """Read the next line that is not empty; None at the end of the readable data."""
        while self._end is None or self._offset < self._end:
            if self._foreign >= MAX_FOREIGN_LINES:
                self._note_end(self._offset, f"{MAX_FOREIGN_LINES} lines before it contain no frame")
                break
            offset = self._offset
            data = self._read_line()
            if not data:
                return None
            stripped = data.strip()
            if not stripped:
                if not self._skip_blank():
                    return None
                continue
            match = _MONOTONIC.search(data)
            self._foreign = 0 if match is not None else self._foreign + 1
            if match is not None:
                clock = float(match[1])
                self._seconds += max(0.0, clock - (clock if self._clock is None else self._clock))
                self._clock = clock
            return Line(self._seconds, offset, stripped)
        return None

    def decode(self, line: Line) -> Record | None:
        """Decode a line; returns None for a damaged line, which is counted once however often the line is read."""
        if sum(map(line.data.count, _VALUE_STARTS)) > MAX_FRAME_VALUES:
            self._count(line.offset, Problem(ProblemCode.DAMAGED, "A line has more values than any frame."))
            return None
        try:
            return Record(line.seconds, decode(line.data))
        except FrameError as error:
            self._count(line.offset, error.problem)
            return None

    def seek(self, seconds: float, offset: int, clock: float | None = None) -> None:
        """Move to a line whose position is known."""
        try:
            self._source.seek(offset)
        except (OSError, EOFError, zlib.error) as error:
            self._note_cut(error)
        self._seconds, self._offset, self._clock = seconds, offset, clock
        self._is_overlong = False
        self._foreign = 0

    @property
    def clock(self) -> float | None:
        """The recorded clock of the last line."""
        return self._clock

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read_line(self) -> bytes:
        """Read the next line with its line feed, or only the head of an overlong line; empty at the end of the data."""
        try:
            if self._is_overlong and not self._skip_rest():
                return b""
            data = self._source.readline(MAX_LINE_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            self._note_cut(error)
            return b""
        self._offset += len(data)
        if len(data) <= MAX_LINE_BYTES:
            return data
        self._is_overlong = not data.endswith(b"\n")
        return data[:_HEAD_BYTES]

    def _skip_rest(self) -> bool:
        """Skip to the end of an overlong line; returns False if the line does not end, as in a sparse file."""
        limit = self._offset + MAX_SKIPPED_BYTES
        while self._offset < limit:
            rest = self._source.readline(_CHUNK_BYTES)
            self._offset += len(rest)
            if not rest or rest.endswith(b"\n"):
                self._is_overlong = False
                return True
        self._note_end(limit - MAX_SKIPPED_BYTES, "no line ends there")
        return False

    def _skip_blank(self) -> bool:
        """Skip to the next line that is not blank; returns False if that line is too far away."""
        limit = self._offset + MAX_SKIPPED_BYTES
        try:
            while self._offset < limit:
                buffered = self._source.peek(1)
                blank = len(buffered) - len(buffered.lstrip())
                self._offset += len(self._source.read(blank))
                if not blank or blank < len(buffered):
                    return True
        except (OSError, EOFError, zlib.error) as error:
            self._note_cut(error)
            return False
        self._note_end(limit - MAX_SKIPPED_BYTES, "only blank lines follow")
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

    def _note_end(self, offset: int, why: str) -> None:
        """End the recording at ``offset``, also for later passes."""
        self._end = offset
        self._cut = Problem(ProblemCode.DAMAGED, f"Nothing can be read after byte {offset}: {why}.")

    def _note_cut(self, error: Exception) -> None:
        if isinstance(error, EOFError):
            reason = f"The recording is truncated; it is readable up to byte {self._offset}."
        elif isinstance(error, (zlib.error, gzip.BadGzipFile)):
            reason = f"The compressed file is damaged; it is readable up to byte {self._offset}."
        else:
            reason = f"Nothing can be read after byte {self._offset}: {error}."
        self._cut = Problem(ProblemCode.DAMAGED, reason)
