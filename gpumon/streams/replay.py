"""Frames of a recording, at the pace at which they were recorded."""

import os
import stat
import threading
import time
from pathlib import Path
from typing import Final

from gpumon.core.inbox import INBOX_SIZE
from gpumon.core.model import Frame
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.store import BUCKET_SECONDS, HISTORY_BUCKETS
from gpumon.core.text import safe_text
from gpumon.streams.base import Discontinuity, FrameInbox, Position, Stream
from gpumon.streams.pipe import PipeStream, move_standard_input
from gpumon.streams.recording import RecordingReader

MAX_FRAME_GAP_SECONDS: Final = 5.0
"""Longest wait between two frames, in recorded seconds."""
DEMO_TITLE: Final = "demo"
STRIP_SECONDS: Final = HISTORY_BUCKETS * BUCKET_SECONDS
"""History that is loaded before a position, for the strips."""
DEMO: Final = Path(__file__).resolve().parents[1] / "data" / "demo.jsonl.gz"
_MIN_REPEAT_SECONDS: Final = 0.1
_MAX_WAIT_SECONDS: Final = 60.0
_HISTORY_STEP_SECONDS: Final = STRIP_SECONDS / (INBOX_SIZE - 64)
"""The frames of the history must fit into the inbox."""


class ReplayStream:
    """Plays a recording, with pause, seek and speed.

    Args:
        path: The recording, plain or compressed.
        speed: Recorded seconds per second.
        title: Name of the stream on the screen; the file name if not given.
        repeat: Whether to start over at the end.

    Raises:
        CommandError: The file is not a readable recording.
    """

    def __init__(self, path: Path, speed: float = 1.0, title: str | None = None, repeat: bool = False) -> None:
        self.inbox = FrameInbox()
        self.title = title or safe_text(path.name)
        self._reader = RecordingReader(path)
        self._repeat = repeat and self._reader.seekable
        self._speed = speed
        self._paused = False
        self._ended = False
        self._seconds = 0.0
        self._target: float | None = None
        self._last: Frame | None = None
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
        return self._reader.problem

    @property
    def position(self) -> Position:
        """The playback position, or the target of a seek in progress."""
        with self._lock:
            is_seeking = self._target is not None
            seconds = self._seconds if self._target is None else self._target
        has_ended = self._ended and not is_seeking
        return Position(seconds, self._reader.duration_seconds, self._speed, self._paused, has_ended)

    def start(self) -> None:
        """Show the first frame and start playing."""
        first = self._reader.read()
        assert first is not None, "a recording has at least one frame"
        self._show(first.frame)
        self._seconds = first.seconds
        self._counted_at = time.monotonic()
        self._rate = self._speed
        self._thread.start()

    def close(self) -> None:
        """Stop playing; do not wait for the file."""
        self._closing = True
        self._changed.set()
        if self._thread.ident is None:
            self._reader.close()

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
        if not self._reader.seekable:
            return
        duration = self._reader.duration_seconds
        target = max(0.0, seconds)
        with self._lock:
            self._target = target if duration is None else min(target, duration)
        self._changed.set()

    def _run(self) -> None:
        try:
            self._reader.scan(lambda: self._closing)
            self.inbox.ring()
            while not self._closing:
                with self._lock:
                    target, self._target = self._target, None
                    self._seconds = self._seconds if target is None else target
                if target is None:
                    self._play_next()
                else:
                    self._move(target)
        finally:
            self._reader.close()

    def _play_next(self) -> None:
        """Show the next frame when it is due."""
        before = self._reader.problem
        record = self._reader.read()
        if self._reader.problem != before:
            self.inbox.ring()
        if record is None:
            self._play_end()
        elif self._wait(record.seconds - self._seconds):
            self._seconds = record.seconds
            self._show(record.frame)

    def _play_end(self) -> None:
        if self._repeat and self._last is not None:
            if self._wait(max(self._last.interval_seconds, _MIN_REPEAT_SECONDS)):
                self._move(0.0)
            return
        self._ended = True
        self.inbox.ring()
        while not self._is_interrupted():
            self._changed.wait()
            self._changed.clear()

    def _move(self, target: float) -> None:
        """Show the frame at ``target``, after the earlier frames from which histories are drawn."""
        self._ended = False
        self._last = None
        self.inbox.put(Discontinuity.REWOUND)
        start = max(0.0, target - STRIP_SECONDS)
        reached = None
        for record in self._reader.window(start, target, _HISTORY_STEP_SECONDS, self._is_interrupted):
            self._show(record.frame)
            reached = record
        if reached is None and not self._is_interrupted():
            reached = self._reader.read()
            if reached is not None:
                self._show(reached.frame)
        self._seconds = target if reached is None else reached.seconds
        self._due = 0.0
        self._counted_at = time.monotonic()

    def _show(self, frame: Frame) -> None:
        if self._last is not None and frame.monotonic_seconds < self._last.monotonic_seconds:
            self.inbox.put(Discontinuity.REWOUND)
        self._last = frame
        self.inbox.put(frame)

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


def open_replay(file: Path, speed: float) -> Stream:
    """Open the stream of a recording, or of standard input if ``file`` is ``-``.

    Raises:
        CommandError: The input cannot be read, or there is no terminal to read keys from.
    """
    if str(file) != "-":
        return ReplayStream(file, speed)
    descriptor = move_standard_input()
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return ReplayStream(Path(f"/proc/self/fd/{descriptor}"), speed, "standard input")
    return PipeStream(descriptor, "standard input")


def open_demo(speed: float = 1.0) -> ReplayStream:
    """Open the bundled recording, played in a loop.

    Raises:
        CommandError: The bundled recording is missing.
    """
    return ReplayStream(demo_path(), speed=speed, title=DEMO_TITLE, repeat=True)


def demo_path() -> Path:
    """The path of the bundled recording.

    Raises:
        CommandError: The bundled recording is missing.
    """
    if not DEMO.is_file():
        problem = Problem(ProblemCode.NOT_FOUND, f"The bundled recording {DEMO} is missing.", "Reinstall gpumon.")
        raise CommandError(problem, ExitCode.MISSING_PREREQUISITE)
    return DEMO
