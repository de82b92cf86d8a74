"""Recording while the screen is open: a thread writes the frames of this host to a file."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from gpumon.core.model import Frame
from gpumon.core.problems import CommandError
from gpumon.core.units import counted, file_stamp
from gpumon.session.background import RunInBackground

Frames = SimpleQueue[Frame | None]
"""Frames to write; None ends the recording."""


class Recorder:
    """Starts and stops a recording in the current folder.

    Args:
        in_background: Runs the thread.

    Attributes:
        report: Called with what became of a recording, in a sentence.
    """

    def __init__(self, in_background: RunInBackground) -> None:
        self.report: Callable[[str], None] = lambda _: None
        self._in_background = in_background
        self._frames: Frames | None = None

    @property
    def is_recording(self) -> bool:
        """Whether frames are written."""
        return self._frames is not None

    def observe(self, frame: Frame) -> None:
        """Write a frame, if a recording runs."""
        if self._frames is not None:
            self._frames.put(frame)

    def toggle(self) -> None:
        """Start a recording, or stop it."""
        if self._frames is not None:
            self.stop()
            return
        frames: Frames = SimpleQueue()
        self._frames = frames
        path = Path(f"gpumon-{file_stamp()}.jsonl.gz")
        self.report(f"Recording to {path} in the current folder; R stops")
        self._in_background(partial(_write, path, frames), partial(self._take_end, frames))

    def stop(self) -> None:
        """Stop a recording, if one runs; its file is complete up to the last frame that was written."""
        if self._frames is not None:
            self._frames.put(None)
            self._frames = None

    def _take_end(self, frames: Frames, sentence: str) -> None:
        if self._frames is frames:
            self._frames = None
        self.report(sentence)


def _write(path: Path, frames: Frames) -> str:
    """Write frames until the end; returns what became of the recording."""
    from gpumon.streams.recording import RecordingWriter  # late: few sessions record

    count = 0
    try:
        with closing(RecordingWriter(path)) as writer:
            while (frame := frames.get()) is not None:
                writer.write(frame)
                count += 1
    except CommandError as error:
        return str(error)
    return f"Recorded {counted(count, 'frame')}: gpumon replay {path}"
