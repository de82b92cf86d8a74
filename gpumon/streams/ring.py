"""A ring of recordings: the last days of a host, in files that a reader sees as one recording.

Every frame is written to the file of the finest tier, and merged frames to those of the coarser tiers at the same time,
so that nothing is ever rewritten: the oldest files are removed. A reader takes each moment from the finest tier that
still has it. A new era begins where the recorder starts or the clock jumps; the times of one era only rise.
"""

import errno
import os
import re
import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.text import safe_text
from gpumon.streams.lines import Record
from gpumon.streams.recording import RecordingReader, RecordingWriter

TIERS: Final = ((1, 3600.0), (10, 43_200.0), (60, inf))
"""Seconds of a frame, and how long the frames of this length are kept; the last tier is kept for all days."""
FILE_FRAMES: Final = 600
"""Frames of a file: what is lost at once when the oldest file is removed."""
EVENTS: Final = 0
"""The tier of the files of events."""
EVENT_FILE_SECONDS: Final = 86_400.0
_NAME: Final = re.compile(r"(\d{6})-(\d{2})s-(\d{10,11})\.jsonl\.gz")
_MAX_ERA: Final = 999_999
_INSTANT_SECONDS: Final = 1e-3
"""The resolution of times in frames."""
_SYSTEM_FOLDER: Final = Path("/var/lib/gpumon")


class RingFile(NamedTuple):
    """A file of a ring, in the order of time.

    Attributes:
        era: Number of its era.
        start: Unix time of its first frame.
        tier: Seconds of a frame; `EVENTS` for events.
        path: Where it is.
    """

    era: int
    start: int
    tier: int
    path: Path


def ring_files(folder: Path) -> list[RingFile]:
    """The files of a ring, the oldest first.

    Raises:
        CommandError: The folder does not exist, or this user may not read it.
    """
    try:
        names = os.listdir(folder)  # noqa: PTH208 - pathlib would make a path of each name
    except OSError as error:
        raise CommandError(ring_problem(folder, error), ExitCode.MISSING_PREREQUISITE) from None
    matches = (match for name in names if (match := _NAME.fullmatch(name)) is not None)
    return sorted(RingFile(int(match[1]), int(match[3]), int(match[2]), folder / match[0]) for match in matches)


def ring_problem(folder: Path, error: OSError) -> Problem:
    """Why the folder of a ring cannot be used."""
    name = safe_text(str(folder), 200)
    if isinstance(error, FileNotFoundError):
        reason = f"There is no recording of this host in {name}."
        return Problem(ProblemCode.NOT_FOUND, reason, "Start one with: gpumon recorder")
    if isinstance(error, PermissionError):
        remedy = "Run gpumon as the user of the recorder, or start that with --group and a group of yours."
        return Problem(ProblemCode.NO_PERMISSION, f"This user may not read {name}.", remedy)
    return Problem(ProblemCode.NOT_READ, f"{name} cannot be used: {(error.strerror or str(error)).lower()}.")


def state_ring() -> Path:
    """Where the recorder of this user writes: a folder of the system for root, else one of the user's state folder."""
    from gpumon.core.state_file import state_file  # late: few commands need it

    return _SYSTEM_FOLDER if os.geteuid() == 0 and "XDG_STATE_HOME" not in os.environ else state_file("recorder")


def host_ring() -> Path:
    """The ring that shows this host: that of this user, or that of the system where this user has none."""
    own = state_ring()
    return _SYSTEM_FOLDER if not own.is_dir() and os.access(_SYSTEM_FOLDER, os.R_OK | os.X_OK) else own


class RingWriter:
    """Writes a ring and keeps it within its limits.

    Args:
        folder: An existing folder, which no other writer uses.
        days: How long frames and events are kept.
        max_bytes: The ring never becomes larger.
        min_free_bytes: Nothing is written while the disk has less than this free.
        mode: Permissions of the files.
    """

    def __init__(self, folder: Path, days: float, max_bytes: float, min_free_bytes: float, mode: int = 0o600) -> None:
        self._folder = folder
        self._kept_seconds = {EVENTS: days * 86_400.0, **{tier: min(days * 86_400.0, kept) for tier, kept in TIERS}}
        self._max_bytes = max_bytes
        self._min_free_bytes = min_free_bytes
        self._mode = mode
        self._open: dict[int, tuple[RingFile, RecordingWriter]] = {}
        self._era = max((file.era for file in ring_files(folder)), default=0)
        self.start_era()

    def start_era(self) -> None:
        """Close all files and begin an era: the clock has jumped, or the recorder has started."""
        self.close()
        self._era = min(self._era + 1, _MAX_ERA)

    def write(self, tier: int, time_seconds: float, lines: bytes) -> None:
        """Write lines to the newest file of a tier.

        Args:
            tier: Seconds of a frame, or `EVENTS`.
            time_seconds: Unix time of the first line.
            lines: Each with its line feed.

        Raises:
            CommandError: The disk is full or fails; the file is complete up to the lines before.
        """
        known = self._open.get(tier)
        length = FILE_FRAMES * tier or EVENT_FILE_SECONDS
        if known is not None and not 0 <= time_seconds - known[0].start < length:
            known[1].close()
            known = None
        try:
            if known is None:
                known = self._open[tier] = self._create(tier, int(time_seconds))
            known[1].write_line(lines)
        except CommandError:
            if known is not None:
                known[1].close()
            self._open.pop(tier, None)
            raise

    def sync(self, time_seconds: float) -> None:
        """Make sure that all lines survive a loss of power, and remove what is too old or too much.

        Args:
            time_seconds: Unix time.

        Raises:
            CommandError: The disk is full, or nearly so.
        """
        for _, writer in self._open.values():
            writer.sync()
        self._prune(time_seconds)
        self._check_space()

    def _check_space(self) -> None:
        free = shutil.disk_usage(self._folder).free
        if free < self._min_free_bytes:
            from gpumon.core.units import bytes_text

            reason = f"The disk of {safe_text(str(self._folder), 200)} has only {bytes_text(free)} free."
            remedy = "gpumon goes on to record when there is space again; see --min-free."
            raise CommandError.failure(ProblemCode.NOT_WRITTEN, reason, remedy)

    def close(self) -> None:
        """Complete and close all files."""
        for _, writer in self._open.values():
            writer.close()
        self._open.clear()

    def _create(self, tier: int, start: int) -> tuple[RingFile, RecordingWriter]:
        self._check_space()
        path = self._folder / f"{self._era:06d}-{tier:02d}s-{start:010d}.jsonl.gz"
        writer = RecordingWriter(path, level=1 if tier == 1 else 6)  # the finest tier is small: it is kept for an hour
        writer.set_mode(self._mode)
        return RingFile(self._era, start, tier, path), writer

    def _prune(self, time_seconds: float) -> None:
        """Remove the files that are too old, and the oldest ones while the ring is too large.

        A clock that is wrong for a while removes nothing: as many files of each tier as belong to its time stay.
        """
        files = ring_files(self._folder)
        writing = {file.path for file, _ in self._open.values()}
        sizes = {file.path: file.path.stat().st_size for file in files}
        left = sum(sizes.values())
        counts = {tier: sum(file.tier == tier for file in files) for tier in self._kept_seconds}
        for file in files:
            kept = self._kept_seconds.get(file.tier, 0.0)
            length = FILE_FRAMES * file.tier or EVENT_FILE_SECONDS
            is_old = time_seconds - file.start > kept + length and counts.get(file.tier, 0) > kept / length + 1
            if file.path not in writing and (is_old or left > self._max_bytes):
                file.path.unlink(missing_ok=True)
                left -= sizes[file.path]
                counts[file.tier] -= 1


class _Part(NamedTuple):
    """A file as a part of a ring's timeline, up to the start of the next part."""

    base_seconds: float
    file: RingFile


class RingReader:
    """Reads a ring as `RecordingReader` reads a file: times are seconds since the first frame.

    Args:
        folder: The ring.

    Raises:
        CommandError: The folder cannot be read, or has no frame.
    """

    seekable = True

    def __init__(self, folder: Path) -> None:
        self.name = safe_text(str(folder), 200)
        self.duration_seconds: float | None = None
        self.problem: Problem | None = None
        files = [file for file in ring_files(folder) if file.tier != EVENTS]
        if not files:
            error = FileNotFoundError(errno.ENOENT, "")
            raise CommandError(ring_problem(folder, error), ExitCode.USAGE)
        self.start_seconds = float(files[0].start)
        """Unix time of the first frame."""
        self._newest_era = files[-1].era
        self._plans = {tier: _plan(files, tier) for tier, _ in TIERS}
        self._parts = self._plans[1]
        self._number = 0
        self._reader: RecordingReader | None = None

    def __iter__(self) -> Iterator[Record]:
        while (record := self.read()) is not None:
            yield record

    def seconds_at(self, time_seconds: float) -> float:
        """The position of a Unix time; that of the last frame before it where nothing was recorded."""
        number = max((n for n, part in enumerate(self._parts) if part.file.start <= time_seconds), default=0)
        part = self._parts[number]
        return min(part.base_seconds + max(0.0, time_seconds - part.file.start), self._end(number) - _INSTANT_SECONDS)

    def read(self) -> Record | None:
        """Read the next frame; None at the end."""
        while self._number < len(self._parts):
            if self._reader is None:
                self._reader = self._open(self._parts[self._number])
            record = None if self._reader is None else self._reader.read()
            moved = None if record is None else self._moved(record)
            if moved is not None and moved.seconds < self._end(self._number):
                return moved
            self._close_part()
            self._number += 1
        return None

    def window(self, start: float, end: float, step: float, stop: Callable[[], bool]) -> Iterator[Record]:
        """Seek and yield frames, as `RecordingReader.window` does; a long step takes them from a coarser tier."""
        self._close_part()
        finest = max((tier for tier, _ in TIERS if tier <= step), default=1)
        self._parts = self._plans[finest] or self._plans[1]
        step -= finest / 2  # merged frames begin with a frame of a second, which may come a little early
        bases = [part.base_seconds for part in self._parts]
        last = max(0, bisect_right(bases, end) - 1)
        for number in range(max(0, bisect_right(bases, start) - 1), last + 1):
            self._close_part()
            self._number = number
            self._reader = self._open(self._parts[number])
            if self._reader is None:
                continue
            base = bases[number]
            limit = min(end, self._end(number) - _INSTANT_SECONDS) - base
            for record in self._reader.window(max(0.0, start - base), limit, step, stop):
                yield self._moved(record)
            if stop():
                return

    def scan(self, stop: Callable[[], bool], limit: int = 0) -> None:
        """Determine the duration; the position does not change."""
        del limit
        newest = self._plans[1][-1]
        reader = self._open(newest)
        if reader is not None:
            reader.scan(stop)
            self.duration_seconds = newest.base_seconds + (reader.duration_seconds or 0.0)
            reader.close()

    def close(self) -> None:
        """Close the file that is read."""
        self._close_part()

    def _end(self, number: int) -> float:
        """Where a part ends: where the next one of its era begins."""
        part, following = (*self._parts[number : number + 2], None)[:2]
        is_same_era = part is not None and following is not None and part.file.era == following.file.era
        return following.base_seconds if is_same_era and following is not None else inf

    def _moved(self, record: Record) -> Record:
        return Record(self._parts[self._number].base_seconds + record.seconds, record.frame)

    def _open(self, part: _Part) -> RecordingReader | None:
        """The reader of a part; None if the file has no frame, or was removed as the oldest one."""
        try:
            return RecordingReader(part.file.path)
        except CommandError as error:
            if error.problem.code is ProblemCode.NEWER_SCHEMA:
                self.problem = error.problem
            return None

    def _close_part(self) -> None:
        if self._reader is not None:
            era = self._parts[min(self._number, len(self._parts) - 1)].file.era
            if era != self._newest_era:  # the files of the recorder that runs have no end yet
                self.problem = self._reader.problem or self.problem
            self._reader.close()
            self._reader = None


def _plan(files: list[RingFile], finest: int) -> list[_Part]:
    """The parts of a timeline without the tiers below ``finest``: in each era, a tier ends where a finer one begins."""
    parts: list[_Part] = []
    for era in sorted({file.era for file in files}):
        members = [file for file in files if file.era == era]
        start = members[0].start
        base, end = 0.0, inf
        if parts:
            last = parts[-1]
            gap = start - last.file.start  # not positive if the clock has jumped back
            base = last.base_seconds + (gap if gap > 0 else FILE_FRAMES * last.file.tier)
        chosen: list[RingFile] = []
        for tier, _ in TIERS:
            of_tier = [file for file in members if file.tier == tier and tier >= finest and file.start < end]
            chosen = of_tier + chosen
            end = min((end, *(file.start for file in of_tier)))
        parts += [_Part(base + file.start - start, file) for file in chosen]
    return parts


def open_recording(path: Path) -> RecordingReader | RingReader:
    """The reader of a recording, or of a ring if the path is a folder.

    Raises:
        CommandError: It cannot be read, or has no frame.
    """
    return RingReader(path) if path.is_dir() else RecordingReader(path)
