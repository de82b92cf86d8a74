"""Matrix multiplication stress test: every result is compared bit by bit with a checked reference."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

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
    peaks,
    timing,
)
from _kit.products import CHECKED_ROWS, FORMATS, Products, ResultTally, fp32_precision, multiplier, product_bytes

if TYPE_CHECKING:
    from _kit.context import Context

_BATCH_SECONDS, _MAX_IN_BATCH, _WARM_UP_SECONDS = 0.2, 2048, 0.5
_MAX_RESULTS, _MAX_RESULTS_CPU = 16384, 4
_MAX_SHARE_OF_FREE = 0.95
_MIN_SIZE_TO_JUDGE = 4096
_MAX_SLOWDOWN, _MIN_SECONDS_FOR_SLOWDOWN = 0.1, 3.0


@dataclass
class _Measured(ResultTally):
    """Measurements of a run.

    Attributes:
        batches: Start and end of each batch in seconds since the start of the first, and operations per second.
    """

    batches: list[tuple[float, float, float]] = field(default_factory=list)


def _plan(context: Context) -> tuple[int, Uses]:
    """Returns the number of results and the resources of the run.

    Raises:
        UnsupportedError: The type or size is not supported or does not fit.
    """
    parameters = context.parameters
    dtype, size = parameters.dtype, parameters.size
    fixed, result = product_bytes(context)
    if not context.on_gpu:
        return _MAX_RESULTS_CPU, Uses(0, parameters.duration + 3, fixed + _MAX_RESULTS_CPU * result)
    free = context.free_memory()[0]
    fitting = (int(free * _MAX_SHARE_OF_FREE) - fixed) // result
    if fitting < 1:
        required, available = (f"{size_bytes / 2**30:.1f} GiB" for size_bytes in (fixed + result, free))
        raise UnsupportedError(
            f"{dtype} {size} x {size} needs {required}; {available} are free. Choose a smaller size."
        )
    results = min(fitting, max(1, int(free * parameters.memory_percent / 100) // result), _MAX_RESULTS)
    return results, Uses(fixed + results * result, parameters.duration + 3)


def _run(context: Context) -> Verdict:
    results, uses = _plan(context)
    if context.on_gpu:
        context.cap_memory(uses.memory_bytes)
    with fp32_precision(context):
        context.step("Random operands are multiplied once; rows of this reference are checked with float64 on the CPU.")
        products = Products(context, results)
        if wrong_rows := products.wrong_reference_rows():
            return context.fail(f"{wrong_rows} of {CHECKED_ROWS} rows checked with float64 on the CPU are wrong.")
        length = _warm_up(context, products)
        context.step(f"The product is repeated; each of {results} results must equal the reference bit by bit.")
        measured = _measure(context, products, length)
    return _judge(context, measured) if measured.batches else context.fail("No batch was computed.")


def _warm_up(context: Context, products: Products) -> int:
    """Runs until the clocks have risen; returns the number of products per batch."""
    length, until = 1, time.monotonic() + _WARM_UP_SECONDS
    while True:
        seconds = max(timing.batch_seconds(context, products.fill_next, length), 1e-9)
        rate = 2 * context.parameters.size**3 * length / seconds
        context.metric("throughput", rate / 1e12, FORMATS[context.parameters.dtype].unit)
        length = max(1, min(_MAX_IN_BATCH, round(_BATCH_SECONDS * length / seconds)))
        if context.stopping or time.monotonic() >= until:
            return length


def _measure(context: Context, products: Products, length: int) -> _Measured:
    measured, parameters, run_start = _Measured(), context.parameters, time.monotonic()
    context.deadline = run_start + parameters.duration
    while not (context.cancelled or (measured.batches and context.stopping)):
        start = time.monotonic() - run_start
        rate = 2 * parameters.size**3 * length / timing.batch_seconds(context, products.fill_next, length)
        if parameters.inject_error and not measured.batches:
            products.flip_one()
        context.checked += products.compare(length, measured)
        elapsed = time.monotonic() - run_start
        measured.batches.append((start, elapsed, rate))
        context.metric("throughput", rate / 1e12, FORMATS[parameters.dtype].unit)
        context.progress(min(elapsed, parameters.duration), parameters.duration)
    return measured


def _judge(context: Context, measured: _Measured) -> Verdict:
    parameters, rates = context.parameters, [rate for _, _, rate in measured.batches]
    what = f"{parameters.dtype} {parameters.size} x {parameters.size}"
    share, slowdown = _add_results(context, measured, rates)
    if measured.wrong_elements:
        row, column = measured.first_wrong or (0, 0)
        why = f"{what}: {measured.wrong_elements} elements of {measured.results} results are wrong, the first in "
        why += f"row {row}, column {column} (counted from 0)."
        return context.fail(why + (" One was flipped on purpose (inject_error)." if parameters.inject_error else ""))
    rate = f"{what}: {timing.median(rates) / 1e12:.4g} {FORMATS[parameters.dtype].unit}"
    rate += "" if share is None else f", {share:.0%} of the peak at the maximum clock"
    right = f"All {measured.results} results equal the reference, which was checked with float64."
    min_share = FORMATS[parameters.dtype].min_share
    if share is not None and share < min_share and parameters.size >= _MIN_SIZE_TO_JUDGE:
        return context.warn(f"{rate}, while a healthy GPU reaches at least {min_share:.0%}. {right}")
    if context.on_gpu and slowdown > _MAX_SLOWDOWN and measured.batches[-1][1] >= _MIN_SECONDS_FOR_SLOWDOWN:
        return context.warn(f"{rate}; the last second was {slowdown:.0%} slower than the first. {right}")
    return context.ok(f"{rate}. {right}")


def _add_results(context: Context, measured: _Measured, rates: list[float]) -> tuple[Optional[float], float]:
    """Adds the results; returns the share of the peak, or None, and the slowdown from the first to the last second."""
    unit, end = FORMATS[context.parameters.dtype].unit, measured.batches[-1][1]
    median, count, peak, source = timing.median(rates) / 1e12, len(rates), None, ""
    if context.chip is not None and (peak := peaks.peak_operations(context.chip, context.parameters.dtype)):
        per_sm = (peaks.operations_per_clock(context.chip, context.parameters.dtype) or 0) // context.chip.sm_count
        megahertz = (context.chip.clock_hertz or 0) / 1e6
        source = f"{context.chip.sm_count} SMs x {per_sm} operations per clock x {megahertz:.0f} MHz"
    context.result("throughput", median, unit, count, limit=peak and peak / 1e12, limit_source=source)
    first = [rate for _, end_seconds, rate in measured.batches if end_seconds <= 1] or rates[:1]
    last = [rate for start_seconds, _, rate in measured.batches if start_seconds >= end - 1] or rates[-1:]
    context.result("throughput_first_second", timing.median(first) / 1e12, unit, len(first))
    context.result("throughput_last_second", timing.median(last) / 1e12, unit, len(last))
    context.result("results_checked", measured.results, repetitions=count)
    context.result("wrong_elements", measured.wrong_elements, repetitions=measured.results)
    return peak and median * 1e12 / peak, 1 - timing.median(last) / timing.median(first)


WORKLOAD = Workload(
    name="matmul",
    purpose="Multiplies matrices at full load, measures the throughput, and compares every result bit by bit.",
    needs="A GPU or the CPU, and a share of free memory.",
    uses=lambda context: _plan(context)[1],
    run=_run,
    code=(multiplier, Products.fill_next, Products.compare, timing.batch_seconds),
    metrics=(
        DeclaredMetric("throughput*", "TFLOP/s", HIGHER),
        DeclaredMetric("results_checked", "matrices", HIGHER, format="count"),
        DeclaredMetric("wrong_elements", "elements", LOWER, format="count"),
    ),
    parameters=(
        choice("dtype", "bf16", tuple(FORMATS), "Data type of the matrices.", default_cpu="fp32"),
        integer(
            "size", 8192, 64, 32768, "Rows and columns of the square matrices, a multiple of 16.", default_cpu=1024
        ),
        number("duration", 20, 0.1, 86400, "Duration of the load.", unit="s", default_cpu=5),
        number("memory_percent", 10, 0.1, 95, "Maximum share of free GPU memory for the results.", unit="%"),
        flag("inject_error", False, "Flip one bit of one result, to verify the check."),
    ),
)
