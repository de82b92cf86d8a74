"""Measuring time: on the device with events, on the CPU with the clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _kit.context import Context

_CLOCK_GUESS_HERTZ = 1.5e9


def device_seconds(context: Context, work: Callable[[], object], repetitions: int) -> list[float]:
    """Seconds of each of several repetitions, on the device; returns when all are done.

    The repetitions are queued one behind the other, so a short one is not made longer by the time that the host takes
    to start it, as long as the host keeps ahead.
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
    """Seconds of all repetitions together, on the device, with no mark between them."""
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
    """Keeps the device's stream waiting about so long, so that work queues up and gaps in launching do not count."""
    sleep = getattr(context.torch.cuda, "_sleep", None)
    if context.on_gpu and sleep is not None:
        hertz = (context.chip.clock_hertz if context.chip else None) or _CLOCK_GUESS_HERTZ
        sleep(int(seconds * hertz))


def host_seconds(context: Context, work: Callable[[], object]) -> tuple[float, float]:
    """When ``work`` had returned to the host, and when the device had done it, in seconds from the same start."""
    context.synchronize()
    began = time.perf_counter()
    work()
    returned = time.perf_counter()
    context.synchronize()
    return returned - began, time.perf_counter() - began


def median(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of them lie, 0 to 1."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _clocked(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
