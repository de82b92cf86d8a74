"""Burn-in: matrix products at full load and memory tests, alternating or at the same time, every result checked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from _kit import (
    HIGHER,
    LOWER,
    DeclaredMetric,
    UnsupportedError,
    Uses,
    Verdict,
    Workload,
    choice,
    flag,
    integer,
    number,
    timing,
)
from _kit.memory import GIBIBYTE, size_text
from _kit.memory_test import BLOCK_BYTES, MemoryTest
from _kit.products import CHECKED_ROWS, FORMATS, Products, ResultTally, fp32_precision, product_bytes

if TYPE_CHECKING:
    from _kit.context import Context

_RESULTS = 4
_BATCH_SECONDS, _MAX_IN_BATCH = 0.2, 512
_SPARE_BYTES = BLOCK_BYTES + (512 << 20)
"""Scratch memory of the memory test, and workspaces of two streams."""
_MIN_TEST_BYTES = 64 << 20
_DEFAULT_CPU_BYTES = 16 << 20
_MAX_SLOWDOWN = {"alternating": 0.1, "together": 0.25}
"""By mode: next to a memory test, the rate of the products varies with the pattern."""
_MIN_SECONDS_FOR_SLOWDOWN = 30.0
_ADVICE = (
    "Do not train on this GPU: check the kernel log for Xids, run gpumon doctor, reset the GPU and run burn again; if "
    "results are wrong again, have the board replaced."
)


@dataclass
class BurnTally(ResultTally):
    """Measurements of a run.

    Attributes:
        rates: Seconds since the start, and operations per second, of each batch of products.
        memory_steps: Steps of the memory test.
    """

    rates: list[tuple[float, float]] = field(default_factory=list)
    memory_steps: int = 0


class Burn:
    """The two loads of a run.

    Args:
        context: The run.
        memory_bytes: Memory to test.
    """

    def __init__(self, context: Context, memory_bytes: int) -> None:
        self._context = context
        self.products = Products(context, _RESULTS)
        self.memory = MemoryTest(context, memory_bytes)
        self.tally = BurnTally()
        self._steps = self._endless_steps()
        self._stream = context.torch.cuda.Stream(context.device) if context.on_gpu else None
        self._started = time.monotonic()
        self._length = 1
        self._is_planted = False

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def multiply(self) -> None:
        """Runs a batch of products, then compares the results."""
        seconds = timing.batch_seconds(self._context, self.products.fill_next, self._length)
        self._record(seconds)

    def multiply_and_test(self) -> None:
        """Runs a batch of products, and steps of the memory test on another stream until the batch has finished."""
        cuda = self._context.torch.cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()
        for _ in range(self._length):
            self.products.fill_next()
        end.record()
        while True:
            self.test_memory()
            if end.query() or self._context.cancelled:
                break
        end.synchronize()
        self._record(start.elapsed_time(end) / 1e3)

    def test_memory(self) -> None:
        """Runs one step of the memory test: a block is written, or compared and inverted, or compared."""
        cuda = self._context.torch.cuda
        with nullcontext() if self._stream is None else cuda.stream(self._stream):
            next(self._steps)
        self.tally.memory_steps += 1
        if self._context.parameters.inject_error and self.tally.memory_steps == self.memory.block_count:
            with nullcontext() if self._stream is None else cuda.stream(self._stream):
                self.memory.flip_bit(self.memory.size_bytes // 16 * 8, 11)

    def _record(self, seconds: float) -> None:
        """Compares the latest results and records their rate; adapts the length of the next batch."""
        context, seconds = self._context, max(seconds, 1e-9)
        context.checked += self.products.compare(self._length, self.tally)
        rate = 2 * context.parameters.size**3 * self._length / seconds
        self.tally.rates.append((self.elapsed_seconds, rate))
        context.metric("throughput", rate / 1e12, FORMATS[context.parameters.dtype].unit)
        self._length = max(1, min(_MAX_IN_BATCH, round(_BATCH_SECONDS * self._length / seconds)))

    def _endless_steps(self) -> Iterator[str]:
        number_of_round = 0
        while True:
            yield from self.memory.round(number_of_round)
            number_of_round += 1


def _plan(context: Context) -> tuple[int, Uses]:
    """Returns the memory to test in bytes, and the resources of the run.

    Raises:
        UnsupportedError: The type or size is not supported, or too little memory is free.
    """
    parameters = context.parameters
    fixed, result = product_bytes(context)
    products, requested = fixed + _RESULTS * result, parameters.size_mebibytes << 20
    if not context.on_gpu:
        size = requested or _DEFAULT_CPU_BYTES
        return size, Uses(0, parameters.duration + 3, products + 2 * size)
    free = context.free_memory()[0]
    size = free - products - _SPARE_BYTES - (parameters.reserve_mebibytes << 20)
    if requested:
        size = min(size, requested)
    if size < _MIN_TEST_BYTES:
        raise UnsupportedError(
            f"{size_text(free)} is free on this GPU, too little for products of {parameters.size} x "
            f"{parameters.size} and a memory test. Choose a smaller size, or end other processes on the GPU."
        )
    size = size // BLOCK_BYTES * BLOCK_BYTES or size
    return size, Uses(products + _SPARE_BYTES + size, parameters.duration + 5)


def _run(context: Context) -> Verdict:
    size, uses = _plan(context)
    if context.on_gpu:
        context.cap_memory(context.memory()["reserved_bytes"] + uses.memory_bytes)
    with fp32_precision(context):
        context.step(f"Products of random matrices, and {size_text(size)} of memory under test.")
        burn = Burn(context, size)
        if wrong_rows := burn.products.wrong_reference_rows():
            return context.fail(f"{wrong_rows} of {CHECKED_ROWS} rows checked with float64 on the CPU are wrong.")
        _load(context, burn)
        context.synchronize()
    return _judge(context, burn)


def _load(context: Context, burn: Burn) -> None:
    """Applies both loads until the duration is over; each of them at least once."""
    parameters = context.parameters
    context.deadline = time.monotonic() + parameters.duration
    is_together = parameters.mode == "together" and context.on_gpu
    if is_together:
        context.step("Products and memory tests run at the same time, on two streams.")
    while not context.cancelled and not (burn.tally.rates and burn.tally.memory_steps and context.stopping):
        if is_together:
            burn.multiply_and_test()
            _report(context, burn)
        else:
            _phase(context, burn, "Matrix products at full load.", burn.multiply)
            _phase(context, burn, "Memory test: patterns and their inverses.", burn.test_memory)


def _phase(context: Context, burn: Burn, text: str, work: Any) -> None:
    """Repeats one load for the seconds of a phase, at least once."""
    context.step(text)
    end = time.monotonic() + min(context.parameters.phase_seconds, context.parameters.duration / 2)
    while not context.cancelled:
        work()
        _report(context, burn)
        if context.stopping or time.monotonic() >= end:
            return


def _report(context: Context, burn: Burn) -> None:
    context.metric("memory_compared", burn.memory.tally.compared_bytes / 1e9)
    context.progress(min(burn.elapsed_seconds, context.parameters.duration), context.parameters.duration)


def _judge(context: Context, burn: Burn) -> Verdict:
    """Judges the results; gpumon adds temperature, clocks, throttle reasons, ECC errors and remapped rows."""
    tally, memory = burn.tally, burn.memory.tally
    if not tally.rates or not memory.compared_bytes:
        return context.fail("No product, or no memory, was compared: choose a longer duration.")
    slowdown, unit = _add_results(context, burn), FORMATS[context.parameters.dtype].unit
    wrong = []
    if tally.wrong_elements:
        row, column = tally.first_wrong or (0, 0)
        wrong.append(f"{tally.wrong_elements} elements of products are wrong, the first in row {row}, column {column}.")
    if memory.wrong_words:
        wrong.append(f"{memory.wrong_words} words of memory are wrong, the first {memory.faults[0].text}.")
    if wrong:
        planted = context.parameters.inject_error
        return context.fail(
            " ".join([*wrong, "One bit was flipped on purpose (inject_error)." if planted else _ADVICE])
        )
    median = timing.median([rate for _, rate in tally.rates]) / 1e12
    summary = (
        f"{tally.results} products and {memory.compared_bytes / 1e9:,.1f} GB of memory were compared in "
        f"{burn.elapsed_seconds:.0f} s: no wrong result ({median:.4g} {unit})."
    )
    if context.on_gpu and slowdown > _MAX_SLOWDOWN[context.parameters.mode]:
        return context.warn(f"{summary} The products became {slowdown:.0%} slower: see clocks and temperature.")
    if not memory.rounds:
        return context.warn(
            f"{summary} Not every pattern was tested everywhere: choose a longer --duration for a burn-in."
        )
    return context.ok(f"{summary} Look elsewhere for the cause of wrong results or crashes.")


def _add_results(context: Context, burn: Burn) -> float:
    """Adds the results; returns the slowdown of the products from the first tenth to the last tenth of the run."""
    tally, memory = burn.tally, burn.memory.tally
    rates = [rate for _, rate in tally.rates]
    context.result("throughput", timing.median(rates) / 1e12, FORMATS[context.parameters.dtype].unit, len(rates))
    context.result("results_checked", tally.results, repetitions=len(rates))
    context.result("wrong_elements", tally.wrong_elements, repetitions=tally.results)
    context.result("memory_tested", burn.memory.size_bytes / GIBIBYTE, repetitions=tally.memory_steps)
    context.result("memory_compared", memory.compared_bytes / 1e9, repetitions=tally.memory_steps)
    context.result("memory_rounds", memory.rounds, repetitions=max(1, memory.rounds))
    context.result("wrong_words", memory.wrong_words, repetitions=tally.memory_steps)
    part = max(1, len(rates) // 10)
    if burn.elapsed_seconds < _MIN_SECONDS_FOR_SLOWDOWN:
        return 0.0
    return 1 - timing.median(rates[-part:]) / timing.median(rates[:part])


WORKLOAD = Workload(
    name="burn",
    purpose="Burn-in: full load and memory tests for as long as you choose; judges results, heat, clocks and ECC.",
    needs="A GPU with little in use, or the CPU with host memory.",
    uses=lambda context: _plan(context)[1],
    run=_run,
    metrics=(
        DeclaredMetric("throughput", "TFLOP/s", HIGHER),
        DeclaredMetric("results_checked", "matrices", HIGHER, format="count"),
        DeclaredMetric("wrong_elements", "elements", LOWER, format="count"),
        DeclaredMetric("memory_tested", "GiB", HIGHER),
        DeclaredMetric("memory_compared", "GB", HIGHER),
        DeclaredMetric("memory_rounds", "rounds", HIGHER, format="count"),
        DeclaredMetric("wrong_words", "words", LOWER, format="count"),
    ),
    parameters=(
        number("duration", 60, 0.1, 7 * 86400, "Duration; an hour or more for a burn-in.", unit="s", default_cpu=5),
        choice(
            "mode", "alternating", ("alternating", "together"), "One load after the other, or both at once on a GPU."
        ),
        number("phase_seconds", 10, 0.1, 3600, "Length of a phase when the loads alternate.", unit="s", default_cpu=1),
        choice("dtype", "bf16", tuple(FORMATS), "Data type of the matrices.", default_cpu="fp32"),
        integer("size", 8192, 64, 32768, "Rows and columns of the matrices, a multiple of 16.", default_cpu=512),
        integer("size_mebibytes", 0, 0, 500_000, "Memory to test; 0 is all free memory.", unit="MiB", default_cpu=16),
        integer("reserve_mebibytes", 1024, 64, 500_000, "Free GPU memory to leave.", unit="MiB"),
        flag("inject_error", False, "Flip one bit of the memory, to verify the test."),
    ),
    code=(Burn,),
)
