"""Live frames for a command: the collector is started once, and read until the command has its answer."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from gpumon.core.model import Frame
from gpumon.core.problems import CommandError, ExitCode
from gpumon.operations.one_shot import SILENT
from gpumon.streams.base import Stream, SupportsOnDemand
from gpumon.streams.live import LiveStream

FIRST_FRAME_SECONDS: Final = 10.0


class FrameSource:
    """Frames of a stream, one after the other."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._waiting: list[Frame] = []

    def next_frame(self, timeout: float) -> Frame | None:
        """The next frame; None after ``timeout`` seconds without one."""
        deadline = time.monotonic() + timeout
        while not self._waiting:
            left = deadline - time.monotonic()
            if left <= 0 or not self._stream.inbox.arrived.wait(left):
                return None
            self._waiting = [arrival for arrival in self._stream.inbox.drain() if isinstance(arrival, Frame)]
        return self._waiting.pop(0)

    def request_on_demand(self, frame: Frame) -> None:
        """Sample the values of all devices of a frame that are read only on demand, too, from now on."""
        if isinstance(self._stream, SupportsOnDemand):
            self._stream.request_on_demand([device.key for device in frame.devices])

    def frames(self, deadline: float | None = None) -> Iterator[Frame]:
        """Yield frames until ``deadline`` (monotonic seconds).

        Raises:
            CommandError: The collector sent no frame at all.
        """
        has_any = False
        while deadline is None or time.monotonic() < deadline:
            left = FIRST_FRAME_SECONDS if deadline is None else deadline - time.monotonic()
            frame = self.next_frame(min(FIRST_FRAME_SECONDS, max(0.0, left)))
            if frame is not None:
                has_any = True
                yield frame
            elif not has_any:
                raise CommandError(self._stream.problem or SILENT, ExitCode.MISSING_PREREQUISITE)


@contextmanager
def live_frames(interval: float, make: Callable[[float], Stream] = LiveStream) -> Iterator[FrameSource]:
    """Frames of this host; the collector ends with the block."""
    stream = make(interval)
    stream.start()
    try:
        yield FrameSource(stream)
    finally:
        stream.close()
