"""Loading data: worker processes, pinned memory and prefetching, until the device no longer waits for the CPU."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

from _kit import HIGHER, LOWER, DeclaredMetric, UnsupportedError, Uses, Verdict, Workload, integer, number
from _kit.loading import CompressedImages, TrainingStep, shared_memory_problem
from _kit.timing import host_seconds, median

if TYPE_CHECKING:
    from _kit.context import Context

_PREFETCH = 2
"""PyTorch's default: batches that each worker prepares in advance."""
_MAX_WAITING_PERCENT = 5.0
"""A device that waits for less than this share of a step is not waiting for its data."""
_MIN_STEPS = 4
_MAX_STEPS = 1000
_DEVICE_BYTES = 512 << 20


def make_loader(dataset: Any, batch_size: int, workers: int, pin_memory: bool, prefetch_factor: int) -> Any:
    """Returns the loader that is measured."""
    from torch.utils.data import DataLoader

    if not workers:
        return DataLoader(dataset, batch_size, pin_memory=pin_memory)
    return DataLoader(
        dataset,
        batch_size,
        num_workers=workers,
        pin_memory=pin_memory,
        prefetch_factor=prefetch_factor,
        multiprocessing_context="fork",
    )


def timed_steps(batches: Iterator[Any], train_step: Callable[[Any], None]) -> Iterator[tuple[float, float]]:
    """Yields, for each step, the seconds in ``next()``, while the device waits, and those of the complete step.

    ``train_step`` must end with a synchronization, such as ``loss.item()``.
    """
    while True:
        start = time.perf_counter()
        batch = next(batches)
        waited = time.perf_counter() - start
        train_step(batch)
        yield waited, time.perf_counter() - start


@dataclass(frozen=True)
class LoadingPoint:
    """What was measured with one setting of the loader.

    Attributes:
        workers: Number of worker processes; 0: the main process decodes.
        waiting_percent: Share of the time in which the device waits for data.
        samples_per_second: Samples that were loaded and used.
        step_seconds: Mean duration of a step.
        steps: Number of steps.
    """

    workers: int
    waiting_percent: float
    samples_per_second: float
    step_seconds: float
    steps: int

    @property
    def is_enough(self) -> bool:
        """Whether the device practically never waits."""
        return self.waiting_percent < _MAX_WAITING_PERCENT


class LoadingBench:
    """A dataset, a training step, and what was measured with both.

    Args:
        context: The run.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        size = context.parameters.sample_kibibytes << 10
        self.dataset = CompressedImages(size, 1)
        one = min(host_seconds(context, lambda: self.dataset[0])[0] for _ in range(50))
        rounds = max(1, round(context.parameters.decode_ms / 1e3 / one))
        self.dataset = CompressedImages(size, rounds)
        self.decode_seconds = median([host_seconds(context, lambda: self.dataset[1])[0] for _ in range(5)])
        self.train_step = TrainingStep(context, self.dataset)

    def measure(self, workers: int, pin_memory: bool, prefetch_factor: int = _PREFETCH) -> Optional[LoadingPoint]:
        """Runs training steps for a moment; returns None if the run was stopped before.

        Raises:
            ArithmeticError: A sample was lost, repeated or changed.
        """
        parameters, group = self._context.parameters, max(1, workers)
        loader = make_loader(self.dataset, parameters.batch_size, workers, pin_memory, prefetch_factor)
        steps: list[tuple[float, float]] = []
        until = float("inf")
        # Workers finish their first batches together, so only complete groups of batches are counted.
        for count, step in enumerate(timed_steps(iter(loader), self.train_step), start=1):
            if self._context.stopping:
                return None
            if count > group:
                steps.append(step)
            elif count == group:
                until = time.monotonic() + parameters.seconds
            if len(steps) % group == 0 and (
                len(steps) >= _MAX_STEPS or (len(steps) >= _MIN_STEPS and time.monotonic() > until)
            ):
                break
        used, wrong = self.train_step.finish()
        self._context.checked += 1
        if wrong:
            raise ArithmeticError(f"{wrong} of {used} samples arrived in the wrong order or with wrong data")
        waited, total = (sum(values) for values in zip(*steps))
        return LoadingPoint(
            workers=workers,
            waiting_percent=100 * waited / total,
            samples_per_second=len(steps) * parameters.batch_size / total,
            step_seconds=total / len(steps),
            steps=len(steps),
        )

    def sweep(self, limit: int) -> Iterator[LoadingPoint]:
        """Measures 0, 1, 2, 4 and more workers until they are enough, then bisects to the smallest enough number."""
        pin_memory = self._context.on_gpu
        low, high = -1, 0
        while True:
            point = self.measure(high, pin_memory)
            if point is None:
                return
            yield point
            if point.is_enough:
                break
            if high == limit:
                return
            low, high = high, min(limit, max(1, 2 * high))
        while high - low > 1:
            middle = (low + high) // 2
            point = self.measure(middle, pin_memory)
            if point is None:
                return
            yield point
            low, high = (low, middle) if point.is_enough else (middle, high)


def cpu_limit() -> int:
    """Returns the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def _limit(context: Context) -> int:
    return int(context.parameters.max_workers) or cpu_limit()


def _uses(context: Context) -> Uses:
    """Returns the resources.

    Raises:
        UnsupportedError: Shared memory is too small.
    """
    parameters, limit = context.parameters, _limit(context)
    batch = parameters.batch_size * (parameters.sample_kibibytes << 10)
    shared = (2 * _PREFETCH + 1) * limit * batch
    if problem := shared_memory_problem(shared):
        raise UnsupportedError(problem)
    points = 2 * limit.bit_length() + 5
    slowest = (_MIN_STEPS + 1) * parameters.batch_size * parameters.decode_ms / 1e3
    seconds = points * (parameters.seconds + 0.5) + slowest
    return Uses(_DEVICE_BYTES if context.on_gpu else 0, seconds, host_memory_bytes=shared)


def _run(context: Context) -> Verdict:
    context.cap_memory(_DEVICE_BYTES)
    limit = _limit(context)
    bench = LoadingBench(context)
    context.step(
        f"A sample takes {bench.decode_seconds * 1e3:.2f} ms to decode, a step {bench.train_step.seconds * 1e3:.1f} ms "
        f"for {context.parameters.batch_size} samples. Workers decode in parallel, at most {limit} of them."
    )
    points: list[LoadingPoint] = []
    try:
        for point in bench.sweep(limit):
            points.append(point)
            _report(context, point, workers_text(point.workers), point.workers)
            context.progress(len(points), limit.bit_length() + len(points))
        if not points:
            return context.fail("The run ended before the first measurement.")
        remarks = _compare(context, bench, points)
    except ArithmeticError as error:
        return context.fail(f"{error}.")
    context.progress(1, 1)
    return judge_loading(context, bench.decode_seconds, bench.train_step.seconds, points, remarks)


def workers_text(workers: int) -> str:
    """Returns ``0 workers`` or ``1 worker``."""
    return f"{workers} worker{'' if workers == 1 else 's'}"


def _report(context: Context, point: LoadingPoint, case: str, position: Optional[int] = None) -> None:
    """Adds the results of one setting."""
    context.result("waiting", point.waiting_percent, repetitions=point.steps, case=case, position=position)
    context.result("step", point.step_seconds * 1e3, repetitions=point.steps, case=case, position=position)
    context.result("throughput", point.samples_per_second, repetitions=point.steps, case=case, position=position)
    context.metric("waiting", point.waiting_percent)
    context.metric("throughput", point.samples_per_second)


def best_of(points: list[LoadingPoint]) -> LoadingPoint:
    """Returns the point with the fewest workers that are enough, or, if none are, the fastest."""
    enough = [point for point in points if point.is_enough]
    if enough:
        return min(enough, key=lambda point: point.workers)
    return max(points, key=lambda point: point.samples_per_second)


def _compare(context: Context, bench: LoadingBench, points: list[LoadingPoint]) -> str:
    """Measures the best number of workers with other settings; returns a sentence about them."""
    best = best_of(points)
    settings: list[tuple[str, bool, int]] = []
    if context.on_gpu:
        settings.append(("pin_memory=False", False, _PREFETCH))
    if best.workers:
        settings += [(f"prefetch_factor={factor}", context.on_gpu, factor) for factor in (1, 2 * _PREFETCH)]
    changes = []
    for setting, pin_memory, factor in settings:
        point = None if context.stopping else bench.measure(best.workers, pin_memory, factor)
        if point is None:
            break
        _report(context, point, f"{workers_text(best.workers)}, {setting}")
        changes.append(f"{setting} {point.samples_per_second / best.samples_per_second - 1:+.0%}")
    return f" Throughput with other settings: {', '.join(changes)}." if changes else ""


def judge_loading(
    context: Context, decode: float, step: float, points: list[LoadingPoint], remarks: str = ""
) -> Verdict:
    """Returns the verdict.

    Args:
        context: The run.
        decode: Seconds to decode a sample.
        step: Seconds of a step without loading.
        points: What was measured; the first point has no workers.
        remarks: Sentences about other settings.
    """
    batch, limit, best = context.parameters.batch_size, _limit(context), best_of(points)
    device = "GPU" if context.on_gpu else "training step"
    summary = f"With num_workers=0 the {device} waits for its data {points[0].waiting_percent:.0f}% of the time"
    if best.is_enough and not best.workers:
        return context.ok(f"{summary}: decoding is cheap, and the loader needs no workers.{remarks}")
    if best.is_enough:
        return context.ok(
            f"{summary}. num_workers={best.workers} is enough: it waits {best.waiting_percent:.0f}% of the time, and "
            f"throughput is {best.samples_per_second / points[0].samples_per_second:.1f}x as high "
            f"({best.samples_per_second:,.0f} samples/s). Use num_workers={best.workers}; more change nothing.{remarks}"
        )
    most = points[-1].workers
    summary += f", with num_workers={most} still {points[-1].waiting_percent:.0f}%."
    if most < limit:
        return context.warn(f"{summary} The run ended before more workers were measured: choose a longer duration.")
    needed = -int(-decode * batch // step)
    if limit < cpu_limit() and needed <= cpu_limit():
        return context.warn(
            f"{summary} About {needed} workers are needed, and {cpu_limit()} CPUs are available: measure with a larger "
            f"max_workers, and set num_workers to what is enough.{remarks}"
        )
    less = "Decode less: store smaller or already decoded samples, decode on the GPU, or use more CPUs."
    if limit < cpu_limit():
        return context.warn(
            f"{summary} About {needed} workers are needed, more than the {cpu_limit()} CPUs. {less}{remarks}"
        )
    shared = "" if context.on_gpu else " that the training step uses too"
    return context.warn(
        f"{summary} The decode itself is the limit: {cpu_limit()} CPUs{shared} give at most "
        f"{best.samples_per_second:,.0f} samples/s, and the {device} could use {batch / step:,.0f}. {less}{remarks}"
    )


WORKLOAD = Workload(
    name="dataloader",
    purpose="Measures whether the device waits for the DataLoader, and which number of workers ends it.",
    needs="A GPU or the CPU; more than one CPU for workers.",
    uses=_uses,
    run=_run,
    metrics=(
        DeclaredMetric("waiting", "%", LOWER),
        DeclaredMetric("step", "ms", LOWER),
        DeclaredMetric("throughput", "samples/s", HIGHER),
    ),
    parameters=(
        number("decode_ms", 5, 0.01, 1000, "CPU time to decode a sample.", unit="ms", default_cpu=1),
        number("step_ms", 20, 0.1, 10000, "Duration of a training step on the device.", unit="ms", default_cpu=10),
        integer("batch_size", 32, 1, 4096, "Samples per step.", default_cpu=8),
        integer("sample_kibibytes", 16, 1, 4096, "Size of a decoded sample.", unit="KiB"),
        integer("max_workers", 0, 0, 1024, "Largest number of workers; 0 for the number of CPUs."),
        number("seconds", 1.5, 0.01, 60, "Time per setting.", unit="s", default_cpu=0.5),
    ),
    code=(make_loader, timed_steps),
)
