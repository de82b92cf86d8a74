"""Frames of a recording, at the pace at which they were recorded.

A recording starts with its history already filled, as if one had been watching for some minutes.
"""

import math
import os
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from gpumon.core.inbox import INBOX_SIZE
from gpumon.core.model import Frame
from gpumon.core.problems import CommandError, Problem, ProblemCode
from gpumon.core.store import BUCKET_SECONDS, HISTORY_BUCKETS
from gpumon.core.text import safe_text
from gpumon.core.timeline import DEFAULT_HISTORY_SECONDS
from gpumon.core.units import local_time_text, parse_moment
from gpumon.streams.base import DEMO_TITLE, Arrival, Discontinuity, FrameInbox, Position, Stream
from gpumon.streams.lines import Record
from gpumon.streams.pipe import PipeStream, move_standard_input
from gpumon.streams.ring import RingReader, open_recording, ring_files

MAX_FRAME_GAP_SECONDS: Final = 5.0
"""Longest wait between two frames, in recorded seconds."""
WATCHED_SECONDS: Final = 300.0
"""A recording starts this far from its beginning, so that the charts of the first screen are not empty."""
STRIP_SECONDS: Final = HISTORY_BUCKETS * BUCKET_SECONDS
"""History that is loaded before a position, for the strips."""
DEMO_WATCHED_SECONDS: Final = 400.0
"""The demo opens where GPU 0 trains, a rank hangs, and a program has run out of memory."""
DEMO: Final = Path(__file__).resolve().parents[1] / "data" / "demo.jsonl.gz"
_MIN_REPEAT_SECONDS: Final = 0.1
_MAX_WAIT_SECONDS: Final = 60.0
_HISTORY_STEP_SECONDS: Final = STRIP_SECONDS / (INBOX_SIZE - 64)
"""The frames of the history must fit into the inbox."""
_EARLY_STEP_SECONDS: Final = 10.0
_PIECE_FRAMES: Final = 48
_MAX_TAKING_SECONDS: Final = 5.0
_TAKING_CHECK_SECONDS: Final = 0.005
_START_SCAN_BYTES: Final = 4 << 20
"""A recording that is longer starts at `WATCHED_SECONDS`, without a search for its end."""


class ReplayStream:
    """Plays a recording, with pause, seek and speed.

    Args:
        path: The recording, plain or compressed.
        speed: Recorded seconds per second.
        title: Name of the stream on the screen; the file name if not given.
        repeat: Whether to start over at the end. Time goes on then, as if the recording contained each repetition.
        watched_seconds: How much of the recording is history at the start: at most half of it, unless it repeats.
            A `seek` before the start has priority.

    Raises:
        CommandError: The file is not a readable recording.
    """

    def __init__(
        self,
        path: Path,
        speed: float = 1.0,
        title: str | None = None,
        repeat: bool = False,
        watched_seconds: float = 0.0,
    ) -> None:
        self.inbox = FrameInbox()
        self.title = title or safe_text(path.name)
        self.reader = open_recording(path)
        self._repeat = repeat and self.reader.seekable
        self._speed = speed
        self._paused = False
        self._ended = False
        self._seconds = 0.0
        self._target: float | None = None
        self._watched_seconds = watched_seconds if self.reader.seekable else 0.0
        self._offset = 0.0
        self._last: Frame | None = None
        self._last_seconds = 0.0
        self._due = 0.0
        self._rate = 0.0
        self._counted_at = 0.0
        self._closing = False
        self._changed = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="gpumon-replay", daemon=True)

    @property
    def problem(self) -> Problem | None:
        """What could not be read so far, or None."""
        return self.reader.problem

    @property
    def position(self) -> Position:
        """The playback position, or the target of a seek in progress."""
        with self._lock:
            is_seeking = self._target is not None
            seconds = self._seconds if self._target is None else self._target
        has_ended = self._ended and not is_seeking
        return Position(seconds, self.reader.duration_seconds, self._speed, self._paused, has_ended)

    def start(self) -> None:
        """Start playing. Without a history before the start, the first frame is shown at once."""
        if self._target is None and not self._watched_seconds:
            first = self.reader.read()
            assert first is not None, "a recording has at least one frame"
            self._show(first)
            self._seconds = first.seconds
        self._counted_at = time.monotonic()
        self._rate = self._speed
        self._thread.start()

    def close(self) -> None:
        """Stop playing; do not wait for the file."""
        self._closing = True
        self._changed.set()
        if self._thread.ident is None:
            self.reader.close()

    def set_paused(self, paused: bool) -> None:
        """Pause or resume."""
        self._paused = paused
        self._changed.set()

    def set_speed(self, speed: float) -> None:
        """Set the speed in recorded seconds per second."""
        if not speed > 0:
            raise ValueError(f"the speed must be greater than 0, not {speed}")
        self._speed = speed
        self._changed.set()

    def seek(self, seconds: float) -> None:
        """Move to a time since the first frame, in the background; does nothing for a pipe."""
        if not self.reader.seekable:
            return
        duration = self.reader.duration_seconds
        target = max(0.0, seconds)
        with self._lock:
            self._target = target if duration is None else min(target, duration)
        self._changed.set()

    def _run(self) -> None:
        try:
            self._start_in_history()
            self.reader.scan(lambda: self._closing)
            self.inbox.ring()
            while not self._closing:
                self._go_on()
        finally:
            self.reader.close()

    def _start_in_history(self) -> None:
        """Move to the start before the search for the end of a long file, so that the first screen does not wait."""
        if self._watched_seconds:
            self.reader.scan(lambda: self._closing, _START_SCAN_BYTES)
            duration = self.reader.duration_seconds
            with self._lock:
                if self._target is None:
                    start = self._watched_seconds
                    self._target = start if duration is None else min(start, duration / 2)
        if self._target is not None:
            self._go_on()

    def _go_on(self) -> None:
        """Move to the target of a seek, or play the next frame."""
        with self._lock:
            target, self._target = self._target, None
            self._seconds = self._seconds if target is None else target
        if target is None:
            self._play_next()
        else:
            self._move(target)

    def _play_next(self) -> None:
        """Show the next frame when it is due."""
        before = self.reader.problem
        record = self.reader.read()
        if self.reader.problem != before:
            self.inbox.ring()
        if record is None:
            self._play_end()
        elif self._wait(record.seconds - self._seconds):
            self._seconds = record.seconds
            self._show(record)

    def _play_end(self) -> None:
        if self._repeat and self._last is not None:
            if self._wait(max(self._last.interval_seconds, _MIN_REPEAT_SECONDS)):
                self._offset += self._period
                for record in self.reader.window(0.0, 0.0, 0.0, self._is_interrupted):
                    self._show(record)
                self._resume_at(0.0)
            return
        self._ended = True
        self.inbox.ring()
        while not self._is_interrupted():
            self._changed.wait()
            self._changed.clear()

    @property
    def _period(self) -> float:
        """Recorded seconds from the start of a repetition to the start of the next one."""
        interval = _MIN_REPEAT_SECONDS if self._last is None else self._last.interval_seconds
        return (self.reader.duration_seconds or 0.0) + max(interval, _MIN_REPEAT_SECONDS)

    def _move(self, target: float) -> None:
        """Show the frame at ``target``, after the earlier frames from which histories are drawn.

        A short move forward adds the frames on the way to the histories; any other move replaces the histories.
        """
        self._ended = False
        arrivals: list[Arrival] = []
        is_ahead = self._last is not None and self._last_seconds <= target <= self._last_seconds + STRIP_SECONDS
        if is_ahead:
            start = math.nextafter(self._last_seconds, math.inf)
        else:
            start = max(0.0, target - STRIP_SECONDS)
            if self._last is not None:
                arrivals.append(Discontinuity.REWOUND)
            self._last = None
            for frame in self._earlier(target, start):
                self._hand_over(arrivals)
                arrivals.append(frame)
        reached = None
        for record in self.reader.window(start, target, _HISTORY_STEP_SECONDS, self._is_interrupted):
            if record.seconds >= start or not is_ahead:  # otherwise the frame is shown already
                self._hand_over(arrivals)
                arrivals += self._arrivals(record)
                reached = record
        if reached is None and not is_ahead and not self._is_interrupted():
            reached = self.reader.read()
            if reached is not None:
                arrivals += self._arrivals(reached)
        self.inbox.put(*arrivals)
        self._resume_at(target if reached is None else reached.seconds)

    def _hand_over(self, arrivals: list[Arrival]) -> None:
        """Hand over frames of a history once they are many, and wait until they are taken: decoded, they are large.

        None is taken before the first screen, whose start must not wait.
        """
        if len(arrivals) < _PIECE_FRAMES or not self.inbox.has_bell:
            return
        self.inbox.put(*arrivals, Discontinuity.CONTINUED)
        arrivals.clear()
        deadline = time.monotonic() + _MAX_TAKING_SECONDS
        while self.inbox.arrived.is_set() and not self._is_interrupted() and time.monotonic() < deadline:
            time.sleep(_TAKING_CHECK_SECONDS)

    def _earlier(self, target: float, start: float) -> Iterator[Frame]:
        """The frames before ``start`` that an observer would have seen: of earlier repetitions, or of a ring's hour."""
        if isinstance(self.reader, RingReader):
            first = max(0.0, target - DEFAULT_HISTORY_SECONDS)
            for record in self.reader.window(first, start, _EARLY_STEP_SECONDS, self._is_interrupted):
                yield record.frame
            return
        missing = self._watched_seconds - target
        duration = self.reader.duration_seconds
        if not self._repeat or missing <= 0 or not duration:
            return
        count = math.ceil(missing / self._period)
        self._offset = max(self._offset, count * self._period)
        for number in range(count, 0, -1):
            start = max(0.0, number * self._period - missing)
            for record in self.reader.window(start, duration, _HISTORY_STEP_SECONDS, self._is_interrupted):
                yield _moved_frame(record.frame, self._offset - number * self._period)

    def _resume_at(self, seconds: float) -> None:
        """Continue with the frame that follows a moment of the recording."""
        self._seconds = seconds
        self._due = 0.0
        self._counted_at = time.monotonic()

    def _show(self, record: Record) -> None:
        self.inbox.put(*self._arrivals(record))

    def _arrivals(self, record: Record) -> list[Arrival]:
        """A frame, after the news that time was rewound if the clock of the recorded host was restarted."""
        frame = _moved_frame(record.frame, self._offset)
        is_rewound = self._last is not None and frame.monotonic_seconds < self._last.monotonic_seconds
        self._last, self._last_seconds = frame, record.seconds
        return [Discontinuity.REWOUND, frame] if is_rewound else [frame]

    def _wait(self, gap: float) -> bool:
        """Wait for ``gap`` recorded seconds; returns False if a seek or a close was requested meanwhile.

        Lateness is compensated with the next frame, within limits, so that the pace is kept.
        """
        self._due += min(gap, MAX_FRAME_GAP_SECONDS)
        while True:
            self._changed.clear()
            if self._is_interrupted():
                return False
            now = time.monotonic()
            self._due -= (now - self._counted_at) * self._rate
            self._counted_at = now
            self._rate = 0.0 if self._paused else self._speed
            if self._rate and self._due <= 0:
                self._due = max(self._due, -MAX_FRAME_GAP_SECONDS)
                return True
            self._changed.wait(min(self._due / self._rate, _MAX_WAIT_SECONDS) if self._rate else None)

    def _is_interrupted(self) -> bool:
        return self._closing or self._target is not None


def _moved_frame(frame: Frame, seconds: float) -> Frame:
    """The frame as if it had been recorded later."""
    if not seconds:
        return frame
    return replace(
        frame,
        time_seconds=frame.time_seconds + seconds,
        monotonic_seconds=frame.monotonic_seconds + seconds,
        events=tuple(
            replace(
                event, time_seconds=event.time_seconds + seconds, monotonic_seconds=event.monotonic_seconds + seconds
            )
            for event in frame.events
        ),
    )


def open_replay(file: Path, speed: float) -> Stream:
    """Open the stream of a recording, or of standard input if ``file`` is ``-``.

    Raises:
        CommandError: The input cannot be read, or there is no terminal to read keys from.
    """
    if str(file) != "-":
        return ReplayStream(file, speed, watched_seconds=WATCHED_SECONDS)
    descriptor = move_standard_input()
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return ReplayStream(
            Path(f"/proc/self/fd/{descriptor}"), speed, "standard input", watched_seconds=WATCHED_SECONDS
        )
    return PipeStream(descriptor, "standard input")


def open_moment(folder: Path, text: str) -> ReplayStream:
    """Open a ring at a moment, paused: what the screen showed then.

    Args:
        folder: The ring.
        text: A moment as `parse_moment` takes it.

    Raises:
        CommandError: The text is no moment, or there is no ring, or it begins later.
    """
    try:
        time_seconds = parse_moment(text, time.time())
    except (ValueError, OverflowError):
        reason = f"{safe_text(text, 40)!r} is no moment in the past."
        raise CommandError.usage(ProblemCode.INVALID_VALUE, reason, "Use 03:12, -2h, or 2026-05-01T14:30.") from None
    ring_files(folder)  # a folder that does not exist is no file that cannot be read
    stream = ReplayStream(folder, title="recorder")
    reader = stream.reader
    if isinstance(reader, RingReader):
        if time_seconds < reader.start_seconds:
            reader.close()
            begin = local_time_text(reader.start_seconds)
            raise CommandError.usage(ProblemCode.NOT_FOUND, f"The recording of this host begins later: {begin}.")
        stream.set_paused(True)
        stream.seek(reader.seconds_at(time_seconds))
    return stream


def open_demo(speed: float = 1.0) -> ReplayStream:
    """Open the bundled recording, played in a loop.

    Raises:
        CommandError: The bundled recording is missing.
    """
    return ReplayStream(demo_path(), speed=speed, title=DEMO_TITLE, repeat=True, watched_seconds=DEMO_WATCHED_SECONDS)


def demo_path() -> Path:
    """The path of the bundled recording.

    Raises:
        CommandError: The bundled recording is missing.
    """
    if not DEMO.is_file():
        raise CommandError.missing(
            ProblemCode.NOT_FOUND, f"The bundled recording {DEMO} is missing.", "Reinstall gpumon."
        )
    return DEMO
