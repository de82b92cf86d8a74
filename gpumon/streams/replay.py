"""Frames of a recording, at the pace that they were recorded in."""

import os
import stat
import threading
import time
from pathlib import Path
from typing import Final

from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.inbox import INBOX_SIZE
from gpumon.core.model import Frame
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.store import BUCKET_SECONDS, HISTORY_BUCKETS
from gpumon.core.text import safe_text
from gpumon.streams.base import FrameInbox, Position, Rewound, Stream
from gpumon.streams.pipe import PipeStream, take_standard_input
from gpumon.streams.recording import RecordingReader

LONGEST_GAP: Final = 5.0
"""Recorded seconds that are waited for at most between two frames."""
DEMO_TITLE: Final = "demo"
HISTORY_SECONDS: Final = HISTORY_BUCKETS * BUCKET_SECONDS
DEMO: Final = Path(__file__).resolve().parents[1] / "data" / "demo.jsonl.gz"
_SHORTEST_REPEAT: Final = 0.1
_LONGEST_WAIT: Final = 60.0
_HISTORY_STEP: Final = HISTORY_SECONDS / (INBOX_SIZE - 64)


class ReplayStream:
    """Plays a recording; it can be stopped, moved and sped up.

    Args:
        path: The recording, plain or compressed.
        speed: Recorded seconds per second.
        title: What to call it; the file's name if not given.
        repeat: Whether to start over at the end.

    Raises:
        CommandError: It is not a recording that can be read.
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
        """What of the recording could not be read so far."""
        return self._reader.problem

    @property
    def position(self) -> Position:
        """Where it stands, or where it is going to."""
        with self._lock:
            going = self._target is not None
            seconds = self._seconds if self._target is None else self._target
        return Position(seconds, self._reader.duration_seconds, self._speed, self._paused, self._ended and not going)

    def start(self) -> None:
        """Shows the first frame and begins to play."""
        first = self._reader.read()
        assert first is not None, "a recording has a frame"
        self._show(first.frame)
        self._seconds = first.seconds
        self._counted_at = time.monotonic()
        self._rate = self._speed
        self._thread.start()

    def close(self) -> None:
        """Stops playing; does not wait for the file."""
        self._closing = True
        self._changed.set()
        if self._thread.ident is None:
            self._reader.close()

    def set_paused(self, paused: bool) -> None:
        """Stops or goes on."""
        self._paused = paused
        self._changed.set()

    def set_speed(self, speed: float) -> None:
        """Sets recorded seconds per second."""
        if not speed > 0:
            raise ValueError(f"a speed is more than 0, not {speed}")
        self._speed = speed
        self._changed.set()

    def seek(self, seconds: float) -> None:
        """Moves to a time since the first frame, in the background; a pipe cannot be moved in."""
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
                    self._play_on()
                else:
                    self._move(target)
        finally:
            self._reader.close()

    def _play_on(self) -> None:
        """Shows the next frame when its time has come."""
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
            if self._wait(max(self._last.interval_seconds, _SHORTEST_REPEAT)):
                self._move(0.0)
            return
        self._ended = True
        self.inbox.ring()
        while not self._interrupted():
            self._changed.wait()
            self._changed.clear()

    def _move(self, target: float) -> None:
        """Shows the frame at ``target``, after those before it that the histories are drawn from."""
        self._ended = False
        self._last = None
        self.inbox.put(Rewound.REWOUND)
        start = max(0.0, target - HISTORY_SECONDS)
        reached = None
        for record in self._reader.window(start, target, _HISTORY_STEP, self._interrupted):
            self._show(record.frame)
            reached = record
        if reached is None and not self._interrupted():
            reached = self._reader.read()
            if reached is not None:
                self._show(reached.frame)
        self._seconds = target if reached is None else reached.seconds
        self._due = 0.0
        self._counted_at = time.monotonic()

    def _show(self, frame: Frame) -> None:
        if self._last is not None and frame.monotonic_seconds < self._last.monotonic_seconds:
            self.inbox.put(Rewound.REWOUND)
        self._last = frame
        self.inbox.put(frame)

    def _wait(self, gap: float) -> bool:
        """Waits ``gap`` recorded seconds; false if it was asked to move or to end meanwhile.

        Being late is made up for with the next frame, within bounds, so that the pace is kept.
        """
        self._due += min(gap, LONGEST_GAP)
        while True:
            self._changed.clear()
            if self._interrupted():
                return False
            now = time.monotonic()
            self._due -= (now - self._counted_at) * self._rate
            self._counted_at = now
            self._rate = 0.0 if self._paused else self._speed
            if self._rate and self._due <= 0:
                self._due = max(self._due, -LONGEST_GAP)
                return True
            self._changed.wait(min(self._due / self._rate, _LONGEST_WAIT) if self._rate else None)

    def _interrupted(self) -> bool:
        return self._closing or self._target is not None


def open_replay(file: Path, speed: float) -> Stream:
    """The stream of a recording, or of standard input if ``file`` is ``-``.

    Raises:
        CommandError: There is nothing to read, or no terminal left to take keys from.
    """
    if str(file) != "-":
        return ReplayStream(file, speed)
    descriptor = take_standard_input()
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return ReplayStream(Path(f"/proc/self/fd/{descriptor}"), speed, "standard input")
    return PipeStream(descriptor, "standard input")


def open_demo(speed: float = 1.0) -> "ReplayStream":
    """The bundled recording, over and over.

    Raises:
        CommandError: It is not there.
    """
    return ReplayStream(demo_path(), speed=speed, title=DEMO_TITLE, repeat=True)


def demo_path() -> Path:
    """The bundled recording.

    Raises:
        CommandError: This installation lacks it.
    """
    if not DEMO.is_file():
        problem = Problem(ProblemCode.NOT_FOUND, f"The bundled recording {DEMO} is missing.", "Install gpumon again.")
        raise CommandError(problem, ExitCode.NOT_THERE)
    return DEMO
