"""Copies that run while the GPU computes: pageable and pinned memory, non_blocking, and a second stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from _kit import HIGHER, LOWER, DeclaredMetric, UnsupportedError, Uses, Verdict, Workload, integer
from _kit.host import host_free_bytes
from _kit.timing import batch_seconds, device_seconds, median

if TYPE_CHECKING:
    from _kit.context import Context

_SEED = 20260
_WIDTH = 1024
"""Features per sample. A sum of this many products of -1, 0 and 1 is an integer that float16 holds exactly."""
_SAMPLE_BYTES = 2 * _WIDTH
_BATCHES = 3
"""Different batches on the host. The device has two buffers, so a stale buffer always has another batch."""
_DEVICE_TENSORS = 8
"""Upper bound of the tensors as large as a batch: two buffers, two of ``.to()``, two products and their sums."""
_SPARE_BYTES = 256 << 20
"""Workspaces of cuBLAS, one per stream, and rounding by the allocator."""
_MAX_SHARE_OF_FREE = 0.9
_CALIBRATIONS = 20
_WARM_UP_SECONDS = 0.3
"""An idle GPU raises its clocks in less time."""
_PIECE_SAMPLES = 4096
_MAX_ROUNDS = 100_000
_MIN_HIDDEN_PERCENT = 50.0
_FASTER_THAN_IDEAL = 0.97

Compute = Callable[[Any, int], None]
"""Computes with a batch on the device, as step number N."""


def serial(host_batches: Sequence[Any], device: Any, compute: Compute) -> None:
    """Copies a batch, then computes with it: ``.to()`` returns when the copy has finished."""
    for step, batch in enumerate(host_batches):
        compute(batch.to(device), step)


def one_stream(host_batches: Sequence[Any], device: Any, compute: Compute) -> None:
    """Queues copies without waiting for them; a stream still runs them one after another with the computation."""
    for step, batch in enumerate(host_batches):
        compute(batch.to(device, non_blocking=True), step)


def two_streams(host_batches: Sequence[Any], device: Any, compute: Compute) -> None:
    """Copies the next batch on a second stream, into one of two buffers, while the device computes with the other."""
    import torch

    current, copies = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    buffers = [torch.empty_like(host_batches[0], device=device) for _ in range(2)]
    arrived, used = ([torch.cuda.Event() for _ in buffers] for _ in range(2))
    copies.wait_stream(current)  # memory of the buffers may still be in use by earlier work
    for step, batch in enumerate(host_batches):
        slot = step % 2
        with torch.cuda.stream(copies):
            copies.wait_event(used[slot])  # does not overwrite a batch that is still read
            buffers[slot].copy_(batch, non_blocking=True)
            arrived[slot].record(copies)
        current.wait_event(arrived[slot])  # does not read a batch before it has arrived
        compute(buffers[slot], step)
        used[slot].record(current)
    torch.cuda.synchronize(device)


CASES: dict[str, tuple[Callable[[Sequence[Any], Any, Compute], None], bool, str]] = {
    "pageable, serial": (serial, False, "Ordinary host memory: the driver copies it through its own pinned buffer."),
    "pinned, serial": (serial, True, "Pinned host memory: the GPU reads it directly. The host waits for each copy."),
    "pinned, non_blocking": (one_stream, True,
        "non_blocking=True: the host does not wait; a stream still does one thing at a time."),
    "pinned, two streams": (two_streams, True, "Two streams: the next batch is copied while the GPU computes."),
}  # fmt: skip
"""By the name of the case: its function, whether host memory is pinned, and what it shows."""


class OverlapBench:
    """Batches on the host, and a computation whose result shows which batch it has read.

    Args:
        context: The run.
    """

    def __init__(self, context: Context) -> None:
        torch, parameters = context.torch, context.parameters
        self._context = context
        samples = (parameters.size_mebibytes << 20) // _SAMPLE_BYTES
        generator = torch.Generator().manual_seed(_SEED)
        self.pageable = [self._random(samples, generator) for _ in range(_BATCHES)]
        self.pinned = [batch.pin_memory() for batch in self.pageable] if context.on_gpu else self.pageable
        self._weight = self._random(_WIDTH, generator).to(context.device)
        self._product = torch.empty_like(self.pageable[0], device=context.device)
        self._totals = torch.zeros(parameters.steps, dtype=torch.float64, device=context.device)
        self._batch = self.pageable[0].to(context.device)
        self.rounds = 1
        self._expected = [self._total_of(batch) for batch in self.pageable]
        self.copy_seconds: dict[bool, list[float]] = {False: [], True: []}
        self.compute_seconds: list[float] = []

    def compute(self, batch: Any, step: int) -> None:
        """Reads the batch in every round: a product with a weight, and the sum of the product."""
        torch = self._context.torch
        for _ in range(self.rounds):
            torch.mm(batch, self._weight, out=self._product)
            # float32 is exact: the products are random integers whose sums stay below 2^24.
            self._totals[step].add_(self._product.sum(dtype=torch.float32))

    def calibrate(self) -> None:
        """Sets the number of rounds so that a computation takes as long as a pinned copy, or slightly longer."""
        context = self._context
        until = time.monotonic() + (_WARM_UP_SECONDS if context.on_gpu else 0)
        batch_seconds(context, lambda: self.compute(self._batch, 0), _CALIBRATIONS)
        while time.monotonic() < until:
            batch_seconds(context, lambda: self.compute(self._batch, 0), _CALIBRATIONS)
        one = batch_seconds(context, lambda: self.compute(self._batch, 0), _CALIBRATIONS) / _CALIBRATIONS
        copy = self._copied(self.pinned)
        self.rounds = min(_MAX_ROUNDS, max(1, -int(-copy // max(one, 1e-9))))

    def measure_alone(self) -> None:
        """Measures the copies and the computation, each without the other."""
        self.copy_seconds[True].append(self._copied(self.pinned))
        self.copy_seconds[False].append(self._copied(self.pageable))
        work = device_seconds(self._context, lambda: self.compute(self._batch, 0), _CALIBRATIONS)
        self.compute_seconds.append(sum(work) / len(work))

    def run(self, case: str) -> tuple[float, list[int]]:
        """Runs all steps of a case; returns seconds per step, and the steps with a wrong result."""
        function, is_pinned, _ = CASES[case]
        batches = self.pinned if is_pinned else self.pageable
        steps = self._context.parameters.steps
        order = [batches[step % _BATCHES] for step in range(steps)]
        self._totals.zero_()
        self._context.synchronize()
        start = time.perf_counter()
        function(order, self._context.device, self.compute)
        self._context.synchronize()
        seconds = (time.perf_counter() - start) / steps
        totals = self._totals.tolist()
        expected = [self.rounds * self._expected[step % _BATCHES] for step in range(steps)]
        self._context.checked += 1
        return seconds, [step for step in range(steps) if totals[step] != expected[step]]

    def _copied(self, batches: Sequence[Any]) -> float:
        """Returns seconds per copy by the host clock, queued back to back."""
        context = self._context
        self._batch.copy_(batches[0])
        context.synchronize()
        start = time.perf_counter()
        for count in range(_CALIBRATIONS):
            self._batch.copy_(batches[count % _BATCHES], non_blocking=True)
        context.synchronize()
        return (time.perf_counter() - start) / _CALIBRATIONS

    def _total_of(self, batch: Any) -> float:
        """Returns the sum of the product of a batch with the weight, computed on the host in integers."""
        torch = self._context.torch
        columns = sum(piece.sum(dim=0, dtype=torch.int64) for piece in batch.split(_PIECE_SAMPLES))
        return float((columns @ self._weight.cpu().sum(dim=1, dtype=torch.int64)).item())

    def _random(self, rows: int, generator: Any) -> Any:
        """Returns a matrix of -1, 0 and 1 on the host."""
        torch = self._context.torch
        return torch.randint(-1, 2, (rows, _WIDTH), generator=generator, dtype=torch.int8).to(torch.float16)


def hidden_percent(step: float, copy: float, compute: float) -> float:
    """Returns the share of the copy that adds nothing to the step, from 0 to 100; all times in the same unit."""
    return 100 * min(1.0, max(0.0, (copy + compute - step) / copy))


def _uses(context: Context) -> Uses:
    """Returns the memory of the batches.

    Raises:
        UnsupportedError: They do not fit.
    """
    size = context.parameters.size_mebibytes << 20
    host, device = 2 * _BATCHES * size, _DEVICE_TENSORS * size + _SPARE_BYTES
    available = host_free_bytes()
    if available is not None and host > available // 2:
        raise UnsupportedError(
            f"{2 * _BATCHES} batches of {size >> 20} MiB are more than half of the {available >> 20} MiB of host "
            "memory that are available. Choose a smaller size_mebibytes."
        )
    if context.on_gpu and device > context.free_memory()[0] * _MAX_SHARE_OF_FREE:
        raise UnsupportedError(
            f"Batches of {size >> 20} MiB need {device / 2**30:.1f} GiB; {context.free_memory()[0] / 2**30:.1f} GiB "
            "are free. Choose a smaller size_mebibytes."
        )
    return Uses(device if context.on_gpu else 0, 15, host_memory_bytes=host)


def _run(context: Context) -> Verdict:
    context.cap_memory(_uses(context).memory_bytes)
    repetitions, size = context.parameters.repetitions, context.parameters.size_mebibytes
    context.step(f"{_BATCHES} batches of {size} MiB are prepared, in pageable and in pinned host memory.")
    bench = OverlapBench(context)
    bench.calibrate()
    context.step(f"One computation is {bench.rounds} matrix products, which take about as long as a pinned copy.")
    seconds: dict[str, list[float]] = {case: [] for case in CASES}
    total = repetitions * len(CASES)
    for repetition in range(repetitions):
        bench.measure_alone()
        for done, (case, (_, _, about)) in enumerate(CASES.items(), start=1):
            if context.stopping:
                break
            if not repetition:
                context.step(about)
            step, wrong = bench.run(case)
            if wrong:
                return context.fail(
                    f"{case}: {len(wrong)} of {context.parameters.steps} steps computed with wrong data, the first is "
                    f"step {wrong[0]}. A batch was read before it arrived, or overwritten while it was read."
                )
            seconds[case].append(step)
            context.metric(case, step * 1e3)
            context.progress(repetition * len(CASES) + done, total)
    if not all(seconds.values()):
        return context.fail("The run ended before every case was measured.")
    return _report(context, bench, seconds)


def _report(context: Context, bench: OverlapBench, seconds: dict[str, list[float]]) -> Verdict:
    """Adds the results of all cases and returns the verdict."""
    copies = {is_pinned: median(values) for is_pinned, values in bench.copy_seconds.items()}
    compute, alone = median(bench.compute_seconds), len(bench.compute_seconds) * _CALIBRATIONS
    context.result("copy_pageable", copies[False] * 1e3, repetitions=alone)
    context.result("copy_pinned", copies[True] * 1e3, repetitions=alone)
    context.result("compute", compute * 1e3, repetitions=alone)
    steps, hidden = {}, {}
    for case, values in seconds.items():
        steps[case] = median(values)
        hidden[case] = hidden_percent(steps[case], copies[CASES[case][1]], compute)
        context.result("step", steps[case] * 1e3, repetitions=len(values) * context.parameters.steps, case=case)
        context.result("copy_hidden", hidden[case], repetitions=len(values), case=case)
    ideal = max(copies[True], compute)
    context.result("step", ideal * 1e3, repetitions=alone, case="ideal")
    context.result("copy_hidden", hidden_percent(ideal, copies[True], compute), repetitions=alone, case="ideal")
    return judge_overlap(context, steps, hidden, ideal)


def judge_overlap(context: Context, steps: dict[str, float], hidden: dict[str, float], ideal: float) -> Verdict:
    """Returns the verdict.

    Args:
        context: The run.
        steps: Seconds per step of each case.
        hidden: Percentage of the copy that each case hides.
        ideal: Seconds of the longer of copy and computation.
    """
    pageable, pinned, single, double = (steps[case] * 1e3 for case in CASES)
    percent = [hidden[case] for case in CASES]
    summary = (
        f"A step takes {pageable:.2f} ms from pageable memory, {pinned:.2f} ms from pinned memory and {double:.2f} ms "
        f"with two streams; ideal are {ideal * 1e3:.2f} ms. Two streams hide {percent[3]:.0f}% of the copy, "
        f"non_blocking=True on one stream {percent[2]:.0f}% ({single:.2f} ms)."
    )
    if double < _FASTER_THAN_IDEAL * ideal * 1e3:
        return context.warn(
            f"{summary} Faster than ideal is not possible: the clocks changed during the run. Repeat it on an idle GPU."
        )
    if percent[3] < _MIN_HIDDEN_PERCENT:
        return context.warn(
            f"{summary} A second stream hides little of the copy here: check for other processes that use this GPU or "
            f"its PCIe link. Pinned memory alone makes a step {pageable / pinned:.1f}x faster than pageable memory."
        )
    return context.ok(
        f"{summary} When a copy takes as long as the computation: use pin_memory=True in the DataLoader, and copy the "
        f"next batch with non_blocking=True on a second stream. That is {pageable / double:.1f}x faster than pageable "
        f"memory and {pinned / double:.1f}x faster than pinned memory alone."
    )


WORKLOAD = Workload(
    name="overlap",
    purpose="Measures how much of the copy to the GPU each way of loading hides behind the computation.",
    needs="A GPU with CUDA; 0.8 GiB of GPU memory and 0.4 GiB of host memory at the default size.",
    why_not_cpu="overlap measures copies that run while a GPU computes; on the CPU there is nothing to copy.",
    uses=_uses,
    run=_run,
    metrics=(DeclaredMetric("copy_hidden", "%", HIGHER), DeclaredMetric("*", "ms", LOWER)),
    parameters=(
        integer("size_mebibytes", 64, 1, 1024, "Size of a batch.", unit="MiB"),
        integer("steps", 50, 4, 1000, "Steps per measurement."),
        integer("repetitions", 5, 1, 50, "Measurements per case; the median is reported."),
    ),
    code=(serial, one_stream, two_streams),
)
