"""Time measurement: with CUDA events on a GPU, with the clock on the CPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _kit.context import Context

_CLOCK_GUESS_HERTZ = 1.5e9


def device_seconds(context: Context, work: Callable[[], object], repetitions: int) -> list[float]:
    """Returns the device time of each repetition in seconds, after all have finished.

    The repetitions are queued back to back, so the launch overhead of the host does not count as long as the host is
    ahead of the device.
    """
    if not context.on_gpu:
        return [_clocked(work) for _ in range(repetitions)]
    cuda = context.torch.cuda
    marks = [cuda.Event(enable_timing=True) for _ in range(repetitions + 1)]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    marks[-1].synchronize()
    return [first.elapsed_time(second) / 1e3 for first, second in zip(marks, marks[1:])]


def batch_seconds(context: Context, work: Callable[[], object], repetitions: int) -> float:
    """Returns the device time of all repetitions together in seconds, without events between them."""
    if not context.on_gpu:
        return sum(_clocked(work) for _ in range(repetitions))
    cuda = context.torch.cuda
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repetitions):
        work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def hold(context: Context, seconds: float) -> None:
    """Blocks the current stream for about ``seconds``, so that work is queued ahead and launch gaps do not count."""
    sleep = getattr(context.torch.cuda, "_sleep", None)
    if context.on_gpu and sleep is not None:
        hertz = (context.chip.clock_hertz if context.chip else None) or _CLOCK_GUESS_HERTZ
        sleep(int(seconds * hertz))


def host_seconds(context: Context, work: Callable[[], object]) -> tuple[float, float]:
    """Returns when ``work`` returned to the host and when the device finished it, in seconds from the same start."""
    context.synchronize()
    start = time.perf_counter()
    work()
    returned = time.perf_counter()
    context.synchronize()
    return returned - start, time.perf_counter() - start


def median(values: Sequence[float]) -> float:
    """Returns the median."""
    return statistics.median(values)


def _clocked(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def time_text(seconds: float) -> str:
    """Returns a time with a suitable unit."""
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e6:.3g} µs"
