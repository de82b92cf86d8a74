"""Observes the main thread for a time: where it is, its steps, and the CPU time that it takes."""

from __future__ import annotations

import os
import sys
import time

from .identity import MAX_TEXT_LENGTH
from .training import main_thread

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
_MAX_SLEEP_SECONDS = 0.05
"""Others are served at this interval: to return to the sockets after each sample would take as long as the sample."""
_GOLDEN_RATIO = 0.6180339887
_MAX_NAME_LENGTH = 80


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
    stacks = _Stacks()
    start, cpu_seconds, process_seconds = time.monotonic(), time.clock_gettime(clock), time.process_time()
    now, number, serve_at = start, 0, start
    while now < start + seconds:
        reached = int((now - start) * hertz) + 1
        if reached > number:
            # The GIL may have been held for longer than an interval: the stack counts for all of that time.
            stacks.add(sys._current_frames().get(thread), reached - number)
            number = reached
        # At a different point of each interval: samples in step with the training would always see the same line.
        due = start + (number + number * _GOLDEN_RATIO % 1.0) / hertz
        pause = max(0.0, min(due, start + seconds) - time.monotonic())
        if now + pause < serve_at:
            time.sleep(pause)
        else:
            serve_at = now + _MAX_SLEEP_SECONDS
            yield pause
        now = time.monotonic()
    return {
        "samples": {"seconds": now - start, "samples_count": number, "stacks": stacks.most_frequent()},
        "steps": [[round(value, 7) for value in step] for step in tuple(training.steps) if step[0] - step[1] >= start],
        "cpu_seconds": time.clock_gettime(clock) - cpu_seconds,
        "process_cpu_seconds": time.process_time() - process_seconds,
    }


class _Stacks:
    """How often a thread had which stack."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, ...], int] = {}
        self._codes: dict[int, CodeType] = {}
        """By their `id`, which is much cheaper to hash than the code."""

    def add(self, frame: FrameType | None, count: int) -> None:
        """Add a stack; one that was not seen before is left out if there are too many."""
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
        stack = tuple(key)
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
