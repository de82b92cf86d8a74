"""Frames for scripts and notebooks: what gpumon measures, as typed records.

    import gpumon.api

    for gpu in gpumon.api.snapshot().gpus:
        print(gpu.index, gpu.get("utilization_gpu_percent"))

    with gpumon.api.frames(interval=1) as frames:
        for frame in frames:
            print(frame.devices[0].get("power_watts"))

The names in ``__all__`` are stable: fields and metrics are added, but not renamed or removed. A missing value is None,
and ``problems`` of its record has the reason. The driver is called in a separate process, which ends with the iterator.
"""

import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Final, final

from gpumon.core.model import (
    ComputeMode,
    Device,
    DeviceEvent,
    DeviceState,
    Frame,
    Host,
    MigInstance,
    Process,
    ProcessKind,
    Switch,
)
from gpumon.core.problems import CommandError, Problem, ProblemCode
from gpumon.operations.frame_source import FIRST_FRAME_SECONDS, FrameSource
from gpumon.operations.one_shot import SILENT, sample_frame
from gpumon.streams.base import Stream
from gpumon.streams.live import LiveStream

__all__ = [
    "ComputeMode",
    "Device",
    "DeviceEvent",
    "DeviceState",
    "Frame",
    "FrameIterator",
    "GpumonError",
    "Host",
    "MigInstance",
    "Problem",
    "ProblemCode",
    "Process",
    "ProcessKind",
    "Switch",
    "frames",
    "snapshot",
]

MIN_INTERVAL_SECONDS: Final = 0.1
MAX_INTERVAL_SECONDS: Final = 3600.0
_TICK_SECONDS: Final = 0.25
"""How soon a waiting iterator notices that it was closed."""


class GpumonError(Exception):
    """gpumon cannot return frames.

    Attributes:
        problem: The reason, and how to fix it.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@final
class FrameIterator:
    """Iterates over the frames of this host, in any thread, until it is closed.

    It is also a context manager, which closes it. A reader that is slower than the interval misses frames, not the
    newest one.

    Args:
        stream: A stream that has not been started.
    """

    def __init__(self, stream: Stream) -> None:
        self._source = FrameSource(stream)
        self._stream = stream
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._has_frame = False
        self._finalizer: Callable[[], object] = weakref.finalize(self, stream.close)
        stream.start()

    def __iter__(self) -> "FrameIterator":
        return self

    def __next__(self) -> Frame:
        """The next frame.

        Raises:
            GpumonError: The collector sent no frame.
            StopIteration: The iterator was closed.
        """
        waited = 0.0
        with self._lock:
            while not self._closed.is_set():
                frame = self._source.next_frame(_TICK_SECONDS)
                if frame is not None:
                    self._has_frame = True
                    return frame
                waited += _TICK_SECONDS
                if not self._has_frame and waited >= FIRST_FRAME_SECONDS:
                    self.close()
                    raise GpumonError(self._stream.problem or SILENT)
        raise StopIteration

    def __enter__(self) -> "FrameIterator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the collector; iterators in other threads end too. May be called again."""
        self._closed.set()
        self._finalizer()


def frames(interval: float = 1.0) -> FrameIterator:
    """The frames of this host, from now on.

    Args:
        interval: Seconds between frames, 0.1 to 3600.

    Raises:
        ValueError: The interval is out of range.
    """
    if not MIN_INTERVAL_SECONDS <= interval <= MAX_INTERVAL_SECONDS:
        raise ValueError(f"interval must be from {MIN_INTERVAL_SECONDS:g} to {MAX_INTERVAL_SECONDS:g} seconds")
    return FrameIterator(LiveStream(interval))


def snapshot() -> Frame:
    """One sample of this host; takes about half a second.

    Without a driver, the frame has no devices, and its ``problems`` have the reason.

    Raises:
        GpumonError: The collector did not respond within ten seconds.
    """
    try:
        return sample_frame()
    except CommandError as error:
        raise GpumonError(error.problem) from None
