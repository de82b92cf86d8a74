"""Batch size of a training run: throughput by batch size, the largest that fits under a memory cap, and the knee."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

from _kit import HIGHER, DeclaredMetric, Uses, Verdict, Workload, choice, integer, number
from _kit.host import host_free_bytes
from _kit.memory import resident_bytes
from _kit.models import KINDS, SIZES, Model, build
from _kit.training import PRECISIONS, StepOptions, training_step
from _kit.training_advice import KNEE
from _kit.training_run import TRAINING_METRICS, Measured, NotTrainedError, VariantError, limit_of, measure

if TYPE_CHECKING:
    from _kit.context import Context

_RESOLUTION = 16
"""The bisection ends when the largest batch is known to a 16th."""
_SECONDS_AROUND = 1.5
_SIZES = 14
"""Typical number of batch sizes that are tried."""


@dataclass
class _Sweep:
    """What a sweep has measured.

    Attributes:
        points: Measurement of each batch size, in the order of the sweep.
        too_large: Smallest batch size that did not fit, or None.
        out_of_memory: Number of out-of-memory errors.
    """

    points: dict[int, Measured] = field(default_factory=dict)
    too_large: Optional[int] = None
    out_of_memory: int = 0


def next_size(largest: int, too_large: Optional[int], maximum: int) -> Optional[int]:
    """Returns the next batch size to try: twice the largest, then halfway to what is too large; None at the end.

    Args:
        largest: Largest size that fits so far; 0 before the first.
        too_large: Smallest size that does not fit, or None.
        maximum: Largest size to try.
    """
    if too_large is None:
        return None if largest >= maximum else min(maximum, max(1, 2 * largest))
    if too_large - largest <= max(1, largest // _RESOLUTION):
        return None
    return (largest + too_large) // 2


def _limit_bytes(context: Context) -> int:
    """Returns the memory that the run may use: a share of what is free on the GPU, or on the host."""
    free = context.free_memory()[0] if context.on_gpu else host_free_bytes() or 0
    return int(free * context.parameters.memory_percent / 100)


def _uses(context: Context) -> Uses:
    limit, seconds = _limit_bytes(context), _SIZES * (context.parameters.duration + _SECONDS_AROUND)
    return Uses(limit, seconds) if context.on_gpu else Uses(0, seconds, host_memory_bytes=limit)


def _run(context: Context) -> Verdict:
    parameters, limit = context.parameters, _limit_bytes(context)
    context.cap_memory(limit)
    model = build(context.torch, parameters.model, parameters.model_size)
    context.step(f"{model.about}, {parameters.precision}, with at most {limit / 2**30:.3g} GiB.")
    sweep = _Sweep()
    try:
        _sweep(context, model, limit, sweep)
    except (VariantError, NotTrainedError) as error:
        return context.fail(str(error))
    if not sweep.points:
        return context.fail(f"Not even a batch of 1 fits into {limit / 2**30:.3g} GiB. Choose a smaller model_size.")
    return _judge(context, sweep, limit)


def _sweep(context: Context, model: Model, limit: int, sweep: _Sweep) -> None:
    """Doubles the batch size until memory runs out, and then bisects.

    Raises:
        VariantError: The device cannot train in this precision.
        NotTrainedError: A step did not train.
    """
    largest = 0
    baseline = resident_bytes()
    while not context.stopping:
        size = next_size(largest, sweep.too_large, context.parameters.max_batch)
        if size is None:
            break
        measured = _try(context, model, size, context.parameters.duration, sweep)
        if measured is None:
            sweep.too_large = size
            continue
        largest = size
        context.metric("samples", measured.samples_per_second)
        sweep.points[size] = measured
        # Without a cap that fails cleanly, as on a GPU, the sweep ends before the next doubling exceeds the limit.
        if not context.on_gpu and measured.peak_bytes is not None and measured.peak_bytes - baseline > limit // 2:
            context.step(
                f"The process has grown by {(measured.peak_bytes - baseline) / 2**30:.3g} GiB: no larger batch."
            )
            break
    for size in sorted(sweep.points):
        _add_point(context, size, sweep.points[size])


def _try(context: Context, model: Model, size: int, seconds: float, sweep: _Sweep) -> Optional[Measured]:
    """Measures a batch size; returns None if memory runs out, after which the next size proves the recovery."""
    try:
        return measure(context, model, StepOptions(context.parameters.precision), size, seconds)
    except VariantError as error:
        if not error.is_memory:
            raise
    sweep.out_of_memory += 1
    context.step(f"Out of memory with a batch of {size}; the memory is freed, and the sweep goes on.")
    return None


def _add_point(context: Context, size: int, measured: Measured) -> None:
    """Adds the results of one batch size."""
    peak, source = limit_of(context, context.parameters.precision)

    def add(name: str, value: float, limit: Optional[float] = None, limit_source: str = "") -> None:
        context.result(
            name, value, repetitions=measured.repetitions, limit=limit, limit_source=limit_source, case=f"batch {size}",
            position=size,
        )  # fmt: skip

    add("samples", measured.samples_per_second)
    add("step", measured.step_seconds * 1e3)
    add("throughput", measured.flops_per_second / 1e12, peak and peak / 1e12, source)
    if measured.peak_bytes is not None:
        add("peak_memory" if context.on_gpu else "peak_resident_memory", measured.peak_bytes / 2**20)


def _judge(context: Context, sweep: _Sweep, limit: int) -> Verdict:
    points, largest = sweep.points, max(sweep.points)
    best = max(measured.samples_per_second for measured in points.values())
    knee = min(size for size, measured in points.items() if measured.samples_per_second >= KNEE * best)
    chosen, last = points[knee], points[largest]
    context.result("knee", knee, repetitions=len(points))
    context.result("largest", largest, repetitions=len(points))
    context.result("out_of_memory", sweep.out_of_memory, repetitions=len(points) + sweep.out_of_memory)
    memory = "" if chosen.peak_bytes is None else f" with {chosen.peak_bytes / 2**30:.3g} GiB"
    speed = f"{chosen.samples_per_second:,.4g} samples/s, {chosen.samples_per_second / best:.0%} of the best{memory}"
    if sweep.too_large is not None:
        end = f"The largest that fits into {limit / 2**30:.3g} GiB is {largest} ({sweep.too_large} does not"
        end += f"; recovered from {sweep.out_of_memory} out-of-memory errors)"
    else:
        end = f"Batches above {largest} were not tried"
    if knee == largest and sweep.too_large is not None:
        advice = "Throughput still rises at the largest batch that fits: save memory with bf16 or checkpointing."
    elif knee == largest:
        advice = "Throughput still rises there: try a larger max_batch."
    else:
        ratio = last.samples_per_second / chosen.samples_per_second
        advice = f"A batch of {largest} is {ratio:.2f}x as fast: choose it only if the training needs it."
    return context.ok(f"Use a batch of {knee}: {speed}. {end}. {advice}")


WORKLOAD = Workload(
    name="batch",
    purpose="Sweeps the batch size of a training step under a memory cap: throughput, the knee, the largest that fits.",
    needs="A GPU or the CPU.",
    uses=_uses,
    run=_run,
    main_metric="knee",
    metrics=(
        *TRAINING_METRICS,
        DeclaredMetric("knee", "samples", format="count"),
        DeclaredMetric("largest", "samples", HIGHER, format="count"),
        DeclaredMetric("out_of_memory", "errors", format="count"),
    ),
    parameters=(
        choice("model", "transformer", KINDS, "Kind of model."),
        choice("model_size", "base", SIZES, "Size of the model.", default_cpu="small"),
        choice("precision", "bf16", PRECISIONS, "Precision of the products.", default_cpu="fp32"),
        integer("max_batch", 4096, 1, 1 << 20, "Largest batch size to try.", default_cpu=64),
        number("duration", 0.5, 0.01, 60, "Duration of the measurement of each size.", unit="s", default_cpu=0.3),
        number("memory_percent", 25, 0.1, 95, "Maximum share of free memory.", unit="%", default_cpu=10),
    ),
    code=(training_step, next_size),
)
