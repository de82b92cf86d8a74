"""Mixed precision: one model and seed in fp32, TF32, fp16 and bf16: speed, memory, and how far the numbers move."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Optional

from _kit import LOWER, DeclaredMetric, Uses, Verdict, Workload, choice, integer, number
from _kit.host import busy_notes
from _kit.models import KINDS, SIZES, Model, build
from _kit.timing import median
from _kit.training import PRECISIONS, StepOptions, Trainer, float32_mode, half_type, prepare, training_step
from _kit.training_run import (
    TRAINING_METRICS,
    Measured,
    NotTrainedError,
    VariantError,
    guarded,
    limit_of,
    make_batches,
    measure,
)

if TYPE_CHECKING:
    from _kit.context import Context

_PROVOKING_SCALE = 2.0**40
_MAX_OVERFLOWS = 40
_MAX_DRIFT = 0.05
"""Relative difference of the loss from fp32 above which a precision is not recommended."""
_NEAR = 0.95
_SECONDS_AROUND = 8
_ROUNDS = 3
"""Timed runs of each precision, in turn, so that a change of the host's load does not look like a precision's speed."""
_HOST_BYTES = {"tiny": 64 << 20, "small": 512 << 20, "base": 16 << 30}


@dataclass(frozen=True)
class _Numbers:
    """What a precision computes.

    Attributes:
        losses: Loss of each step.
        gradients: Gradients of the first batch, on the CPU, without loss scale.
        overflows: Steps that the GradScaler skipped.
        scale: The loss scale at the end.
    """

    losses: list[float]
    gradients: list[Any]
    overflows: int
    scale: float


@dataclass(frozen=True)
class _Row:
    """One precision.

    Attributes:
        precision: Its name.
        measured: Its speed and memory.
        loss_difference: Largest difference of a loss from fp32, relative to the largest loss of fp32.
        gradient_difference: Distance of the gradients of the first batch from fp32, relative to their length.
        speeds: Samples per second of each timed run.
    """

    precision: str
    measured: Measured
    loss_difference: float
    gradient_difference: float
    speeds: list[float]

    @property
    def speed(self) -> float:
        """Samples per second, the median of the timed runs."""
        return median(self.speeds)

    @property
    def spread(self) -> float:
        """Difference between the fastest and the slowest timed run, in samples per second."""
        return max(self.speeds) - min(self.speeds)


def gradients_of(
    torch: Any, batch: tuple[Any, Any], module: Any, loss_function: Any, scale: float, device: Any, precision: str
) -> list[Any]:
    """Returns the gradients of a batch in a precision, computed with a loss scale, which is divided out again."""
    inputs, targets = (tensor.to(device) for tensor in batch)
    kind = half_type(torch, precision)
    with torch.autocast(device.type, dtype=kind, enabled=kind is not None):
        loss = loss_function(module(inputs), targets)
    (loss * scale).backward()
    gradients = [parameter.grad.detach().to("cpu", copy=True) / scale for parameter in module.parameters()]
    module.zero_grad(set_to_none=True)
    return gradients


def distance(values: list[Any], reference: list[Any]) -> float:
    """Returns the Euclidean distance of tensors from a reference, relative to the length of the reference."""
    difference = sum(float((a.double() - b.double()).square().sum()) for a, b in zip(values, reference))
    return math.sqrt(difference / sum(float(b.double().square().sum()) for b in reference))


def _numbers(context: Context, model: Model, precision: str, batches: list[tuple[Any, Any]]) -> _Numbers:
    """Trains some steps from the same weights and returns their losses, after the gradients of the first batch.

    Raises:
        NotTrainedError: A step did not train.
        VariantError: The numbers overflowed in every step.
    """
    torch, device, options = context.torch, context.device, StepOptions(precision)
    scale = options.initial_scale if precision == "fp16" else 1.0
    with float32_mode(torch, precision):
        module = prepare(torch, copy.deepcopy(model.module), device, options)
        gradients = gradients_of(torch, batches[0], module, model.loss, scale, device, precision)
        while scale > 1 and not all(bool(gradient.isfinite().all()) for gradient in gradients):
            scale /= 2
            gradients = gradients_of(torch, batches[0], module, model.loss, scale, device, precision)
        # Another copy: the statistics of normalization layers have changed.
        module = prepare(torch, copy.deepcopy(model.module), device, options)
        trainer = Trainer(torch, device, module, model.loss, options)
        losses: list[float] = []
        loss = None
        while trainer.steps < context.parameters.steps and not (losses and context.stopping):
            loss = trainer.step(batches[trainer.steps % len(batches)])
            losses.append(float(loss))
        if problem := trainer.problem(loss):
            raise (VariantError if trainer.has_overflowed else NotTrainedError)(f"{precision}: {problem}")
        if not all(map(math.isfinite, losses)):
            raise VariantError(f"{precision}: {sum(not math.isfinite(loss) for loss in losses)} losses overflowed.")
        context.checked += 1
        return _Numbers(losses, gradients, trainer.overflows, trainer.scale)


def _provoke_overflow(context: Context, model: Model, batches: list[tuple[Any, Any]]) -> tuple[int, float]:
    """Starts fp16 with a loss scale that overflows; returns the skipped steps and the scale of the first applied one.

    Raises:
        NotTrainedError: The GradScaler did not skip, or did not recover.
    """
    torch, device = context.torch, context.device
    options = StepOptions("fp16", initial_scale=_PROVOKING_SCALE)
    module = prepare(torch, copy.deepcopy(model.module), device, options)
    trainer, loss = Trainer(torch, device, module, model.loss, options), None
    while trainer.steps == trainer.overflows and trainer.steps < _MAX_OVERFLOWS:
        loss = trainer.step(batches[0])
    if not trainer.overflows:
        raise NotTrainedError(f"fp16: a loss scale of {_power_text(_PROVOKING_SCALE)} did not overflow.")
    if problem := trainer.problem(loss):
        raise NotTrainedError(f"fp16, after {trainer.overflows} provoked overflows: {problem}")
    context.checked += 1
    return trainer.overflows, trainer.scale


def _uses(context: Context) -> Uses:
    parameters = context.parameters
    seconds = len(PRECISIONS) * (parameters.duration + _SECONDS_AROUND)
    if not context.on_gpu:
        return Uses(0, seconds, host_memory_bytes=_HOST_BYTES[parameters.model_size])
    return Uses(int(context.free_memory()[0] * parameters.memory_percent / 100), seconds)


def _run(context: Context) -> Verdict:
    context.cap_memory(_uses(context).memory_bytes)
    model = build(context.torch, context.parameters.model, context.parameters.model_size)
    batches = make_batches(model, context.parameters.batch_size, is_pinned=context.on_gpu)
    rows: list[_Row] = []
    notes = busy_notes() if context.on_gpu else []
    reference: Optional[_Numbers] = None
    for done, precision in enumerate(PRECISIONS):
        context.progress(done, len(PRECISIONS))
        if context.stopping:
            break
        context.step(f"{precision}: {context.parameters.steps} steps from the same weights, then a timed run.")
        try:
            size, options = context.parameters.batch_size, StepOptions(precision)
            measured = measure(context, model, options, size, context.parameters.duration / _ROUNDS)
            numbers = guarded(context, options, size, partial(_numbers, context, model, precision, batches))
            reference = reference or numbers
            rows.append(_row(precision, measured, numbers, reference))
            if precision == "fp16":
                notes.append(_overflow_text(context, model, batches, numbers))
        except VariantError as error:
            notes.append(str(error))
        except NotTrainedError as error:
            return context.fail(str(error))
        if reference is None:
            return context.fail(f"fp32 is the reference and could not be computed: {' '.join(notes)}")
    if problem := _repeat(context, model, rows):
        return context.fail(problem)
    for row in rows:
        _add_results(context, row)
    context.progress(len(PRECISIONS), len(PRECISIONS))
    return _judge(context, rows, notes)


def _repeat(context: Context, model: Model, rows: list[_Row]) -> str:
    """Repeats the timed runs of all precisions in turn; returns why one could not be repeated."""
    for row in [row for _ in range(_ROUNDS - 1) for row in rows]:
        if context.stopping:
            break
        seconds = context.parameters.duration / _ROUNDS
        try:
            again = measure(context, model, row.measured.options, context.parameters.batch_size, seconds)
        except (VariantError, NotTrainedError) as error:
            return f"{row.precision} was measured once, and not again: {error}"
        row.speeds.append(again.samples_per_second)
    return ""


def _row(precision: str, measured: Measured, numbers: _Numbers, reference: _Numbers) -> _Row:
    """Returns a precision compared with fp32.

    Raises:
        NotTrainedError: Another precision than fp32 computed exactly the numbers of fp32.
    """
    loss = max(abs(a - b) for a, b in zip(numbers.losses, reference.losses)) / max(reference.losses)
    gradient = distance(numbers.gradients, reference.gradients)
    if precision != "fp32" and not gradient:
        raise NotTrainedError(f"{precision} computed the same gradients as fp32, so it was not in effect.")
    return _Row(precision, measured, loss, gradient, [measured.samples_per_second])


def _add_results(context: Context, row: _Row) -> None:
    """Adds the results of a precision."""
    measured, precision = row.measured, row.precision
    peak, source = limit_of(context, precision)

    def add(name: str, value: float, limit: Optional[float] = None, limit_source: str = "") -> None:
        context.result(
            name, value, repetitions=measured.repetitions * len(row.speeds), limit=limit, limit_source=limit_source,
            case=precision,
        )  # fmt: skip

    add("samples", row.speed)
    add("speed_spread", 100 * row.spread / row.speed)
    add("throughput", row.speed * measured.step_flops / measured.batch_size / 1e12, peak and peak / 1e12, source)
    if measured.peak_bytes is not None:
        add("peak_memory" if context.on_gpu else "peak_resident_memory", measured.peak_bytes / 2**20)
    add("loss_difference", 100 * row.loss_difference)
    add("gradient_difference", 100 * row.gradient_difference)


def _overflow_text(context: Context, model: Model, batches: list[tuple[Any, Any]], numbers: _Numbers) -> str:
    """Provokes overflows, adds their results, and returns both counts in a sentence."""
    options, size = StepOptions("fp16"), context.parameters.batch_size
    skipped, scale = guarded(context, options, size, lambda: _provoke_overflow(context, model, batches))
    context.result("overflows", numbers.overflows, repetitions=len(numbers.losses), case="fp16")
    context.result("provoked_overflows", skipped, repetitions=skipped + 1, case="fp16")
    context.result("working_scale_exponent", math.log2(scale), repetitions=1, case="fp16")
    return (
        f"fp16 overflowed in {numbers.overflows} of {len(numbers.losses)} steps from a loss scale of "
        f"{_power_text(options.initial_scale)}; from {_power_text(_PROVOKING_SCALE)} the GradScaler skipped {skipped} "
        f"steps and trained at {_power_text(scale)}."
    )


def _judge(context: Context, rows: list[_Row], notes: list[str]) -> Verdict:
    """Recommends the fastest precision whose losses stay near fp32; bf16 before others that are as fast."""
    base = rows[0]
    near = [row for row in rows if row.loss_difference <= _MAX_DRIFT]
    best = max(row.speed for row in near)
    fast = [row for row in near if row.speed >= _NEAR * best]
    chosen = min(fast, key=lambda row: ("bf16", "tf32", "fp16", "fp32").index(row.precision))
    if chosen is base:
        text = "Stay with fp32: no other precision that stays near it is faster here."
    elif chosen.speed - base.speed <= max(chosen.spread, base.spread) or min(chosen.speeds) <= max(base.speeds):
        text = (
            f"Stay with fp32: {chosen.precision} computed {_range_text(chosen)} and fp32 {_range_text(base)} in "
            f"{len(base.speeds)} runs each, so that the difference may be noise. Repeat it on an idle host."
        )
    else:
        ratio = chosen.speed / base.speed
        text = f"Use {chosen.precision}: {ratio:.2f}x faster than fp32 ({_range_text(chosen)}, not {_range_text(base)})"
        if chosen.measured.peak_bytes and base.measured.peak_bytes:
            text += f", with {chosen.measured.peak_bytes / base.measured.peak_bytes:.0%} of its peak memory"
        text += f". Its losses differ from fp32 by at most {chosen.loss_difference:.2%}, its gradients by "
        text += f"{chosen.gradient_difference:.2%}."
    far = [row.precision for row in rows if row not in near]
    if far:
        text += f" The losses of {', '.join(far)} move by more than {_MAX_DRIFT:.0%}."
    text = " ".join([text, *notes])
    return context.warn(text) if far else context.ok(text)


def _range_text(row: _Row) -> str:
    return f"{min(row.speeds):.4g} to {max(row.speeds):.4g} samples/s"


def _power_text(scale: float) -> str:
    return f"2^{math.log2(scale):.0f}"


WORKLOAD = Workload(
    name="amp",
    purpose="Trains in fp32, TF32, fp16 and bf16 from the same weights: speed, memory, drift, overflows.",
    needs="A GPU or the CPU.",
    uses=_uses,
    run=_run,
    main_metric="samples",
    metrics=(
        *TRAINING_METRICS,
        DeclaredMetric("speed_spread", "%", LOWER),
        DeclaredMetric("*_difference", "%", LOWER),
        DeclaredMetric("*overflows", "steps", LOWER, format="count"),
        DeclaredMetric("working_scale_exponent", "bits"),
    ),
    parameters=(
        choice("model", "transformer", KINDS, "Kind of model."),
        choice("model_size", "base", SIZES, "Size of the model.", default_cpu="small"),
        integer("batch_size", 16, 1, 65536, "Samples per step.", default_cpu=4),
        integer("steps", 20, 1, 10000, "Steps whose losses are compared.", default_cpu=5),
        number("duration", 2, 0.05, 600, "Duration of the timed run of each precision.", unit="s", default_cpu=0.5),
        number("memory_percent", 50, 0.1, 95, "Maximum share of free GPU memory.", unit="%"),
    ),
    code=(training_step, gradients_of, distance),
)
