"""Observes the main thread for a time: where it is, its steps, and the CPU time that it takes."""

from __future__ import annotations

import os
import sys
import time
from _thread import get_ident
from contextlib import suppress

from .identity import MAX_TEXT_LENGTH
from .late_samples import LATE_SECONDS, Sample, correct
from .no_collections import NoCollections
from .stacks import known_threads
from .training import main_thread

try:
    import resource
except ImportError:  # a Python that was built without it: no sample is corrected
    resource = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from types import CodeType, FrameType
    from typing import Any

    from .training import Training

MAX_FRAMES = 64
MAX_STACKS = 500
_MIN_SECONDS, _MAX_SECONDS = 1.0, 30.0
_MIN_HERTZ, _MAX_HERTZ = 10, 200
_MAX_DISTINCT_STACKS = 4000
_SERVE_SECONDS = 0.1
"""Others are served at this interval: to return to the sockets after each sample would take as long as the sample."""
_GOLDEN_RATIO = 0.6180339887
_MAX_NAME_LENGTH = 80
_STAT_TICKS = slice(11, 13)
"""The CPU times in a `stat` of `/proc`, after the name."""


def observe(training: Training, request: dict[str, Any]) -> Generator[float, None, dict[str, Any]]:
    """Sample the stack of the main thread, and return it with the steps and the CPU times of that time.

    Args:
        training: The training of this process.
        request: ``milliseconds`` and ``hertz``.
    """
    seconds = min(max(int(request["milliseconds"]) / 1000.0, _MIN_SECONDS), _MAX_SECONDS)
    hertz = min(max(int(request["hertz"]), _MIN_HERTZ), _MAX_HERTZ)
    return _observation(training, seconds, hertz)


def _observation(training: Training, seconds: float, hertz: int) -> Generator[float, None, dict[str, Any]]:
    thread = main_thread()
    clock = time.pthread_getcpuclockid(thread)
    others_ticks = _others_ticks(thread)
    stacks, waits, late = _Stacks(), _Waits(thread), []
    start, cpu_seconds, process_seconds = time.monotonic(), time.clock_gettime(clock), time.process_time()
    now, number, due, serve_at = start, 0, start, start
    while now < start + seconds:
        reached = int((now - start) * hertz) + 1
        if reached > number:
            # The GIL may have been held for longer than an interval: the stack counts for all of that time.
            with NoCollections():
                if now - due < LATE_SECONDS:
                    stacks.add(stacks.stack_of(sys._current_frames().get(thread)), reached - number)
                else:
                    late.append(_late_sample(now, due, reached - number, waits, stacks))
            number = reached
        if now >= serve_at:
            serve_at = now + _SERVE_SECONDS
            yield 0.0
        # At a different point of each interval: samples in step with the training would always see the same line.
        due = min(start + (number + number * _GOLDEN_RATIO % 1.0) / hertz, start + seconds)
        pause = due - time.monotonic()
        if pause > 0:
            waits.sleeps += 1
            time.sleep(pause)
        now = time.monotonic()
    ticks = _others_ticks(thread)
    others = sum(count - others_ticks.get(native_id, 0) for native_id, count in ticks.items())
    correct(late, sys.getswitchinterval(), hertz, others / os.sysconf("SC_CLK_TCK"))
    for sample in late:
        stacks.add(sample.stack, sample.count)
    return {
        "samples": {"seconds": now - start, "samples_count": number, "stacks": stacks.most_frequent()},
        "steps": [[round(value, 7) for value in step] for step in tuple(training.steps) if step[0] - step[1] >= start],
        "cpu_seconds": time.clock_gettime(clock) - cpu_seconds,
        "process_cpu_seconds": time.process_time() - process_seconds,
    }


def _late_sample(now: float, due: float, count: int, waits: _Waits, stacks: _Stacks) -> Sample:
    """A sample that is late, in a separate function, so that no variable keeps those of the program alive."""
    frames = sys._current_frames()
    return Sample(now, now - due, waits.count(frames), count, stacks.stack_of(frames.get(waits.thread)))


def _others_ticks(main: int) -> dict[int, int]:
    """CPU time of the program's Python threads but the main one, by native ID, in ticks of the kernel's clock."""
    ticks = {}
    for identifier, other in known_threads().items():
        native_id = getattr(other, "_native_id", None)
        if identifier != main and native_id:
            with suppress(OSError), open(f"/proc/self/task/{native_id}/stat", "rb") as file:
                ticks[native_id] = sum(map(int, file.read().rpartition(b")")[2].split()[_STAT_TICKS]))
    return ticks


class _Waits:
    """Counts how often this thread waits for the GIL.

    The kernel counts when a thread gives its core away; here it does that to sleep, or because it waits for the GIL.

    Args:
        thread: The identifier of the main thread.

    Attributes:
        thread: The same.
        sleeps: How often this thread slept since the last call of `count`.
    """

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.sleeps = 0
        self._known = {thread, get_ident()}
        self._last = self._switches()

    def count(self, frames: dict[int, FrameType]) -> int:
        """How often this thread waited since the last call; called for few samples, because it takes time.

        Args:
            frames: The frames of all threads. A thread of PyTorch among them may have kept the GIL: then the waits say
                nothing about the main thread, and are 0.
        """
        switches = self._switches()
        waits = switches - self._last - self.sleeps
        self._last, self.sleeps = switches, 0
        return max(0, waits) if frames.keys() <= self._known | known_threads().keys() else 0

    def _switches(self) -> int:
        return 0 if resource is None else int(resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw)


class _Stacks:
    """How often a thread had which stack; stacks are tuples of numbers."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, ...], int] = {}
        self._codes: dict[int, CodeType] = {}
        """By their `id`, which is much cheaper to hash than the code."""

    def stack_of(self, frame: FrameType | None) -> tuple[int, ...]:
        """The stack that ends in a frame."""
        key: list[int] = []
        codes = self._codes
        while frame is not None and len(key) < 2 * MAX_FRAMES:
            code = frame.f_code
            identity = id(code)
            if identity not in codes:
                codes[identity] = code
            key.append(identity)
            key.append(frame.f_lineno or 0)
            frame = frame.f_back
        return tuple(key)

    def add(self, stack: tuple[int, ...], count: int) -> None:
        """Count a stack; one that was not seen before is left out if there are too many."""
        if stack in self._counts or len(self._counts) < _MAX_DISTINCT_STACKS:
            self._counts[stack] = self._counts.get(stack, 0) + count

    def most_frequent(self) -> list[list[Any]]:
        """The most frequent stacks, as a message has them: frames, innermost first, and number of samples."""
        stacks = sorted(self._counts.items(), key=lambda item: -item[1])[:MAX_STACKS]
        return [[self._frames(stack), count] for stack, count in stacks if stack]

    def _frames(self, stack: tuple[int, ...]) -> list[list[Any]]:
        """File, line and function of each frame, without those of the probe."""
        agent_folder = os.path.dirname(observe.__code__.co_filename)
        frames = []
        for identity, line in zip(stack[::2], stack[1::2]):
            code = self._codes[identity]
            if os.path.dirname(code.co_filename) != agent_folder:
                frames.append([code.co_filename[-MAX_TEXT_LENGTH:], line, code.co_name[:_MAX_NAME_LENGTH]])
        return frames
