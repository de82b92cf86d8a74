"""Training of a small model on random data: speed, parts of a step, peak memory, and variants compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Optional

from _kit import HIGHER, LOWER, DeclaredMetric, Uses, Verdict, Workload, choice, flag, integer, number
from _kit.models import KINDS, SIZES, TWICE_THE_WIDTH, Model, build
from _kit.training import PARTS, PRECISIONS, StepOptions, Trainer, prepare, training_step
from _kit.training_advice import GPU_CASE, advice, device_verdict, rate_text, utilization_verdict, variants_verdict
from _kit.training_run import (
    RUNS,
    TRAINING_METRICS,
    Measured,
    NotTrainedError,
    VariantError,
    in_turns,
    limit_of,
    measure,
    options_text,
    product_rate,
)

if TYPE_CHECKING:
    from _kit.context import Context

_BATCH_FACTORS = (0.25, 0.5, 1, 2, 4)
_SECONDS_AROUND = 3
"""Approximate time to build a model, warm up and free its memory."""
_HOST_BYTES = {"tiny": 64 << 20, "small": 512 << 20, "base": 16 << 30}
"""Upper estimate of the resident memory of training on the CPU with the default batch."""
_CPU_STEP_SECONDS = 0.5
"""Next to a GPU, the CPU gets a batch whose step takes about this long at most."""


@dataclass(frozen=True)
class _Variant:
    """One row of the table.

    Attributes:
        case: Its name; empty if nothing is compared.
        options: How its steps are computed.
        batch_size: Samples per step.
        device: Where it trains; None for the device of the run.
        threads: Threads of the CPU; None for all.
        position: The case as a number, in a sweep.
        size: Size of another model to train; empty for that of the run.
    """

    case: str
    options: StepOptions
    batch_size: int
    device: Any = None
    threads: Optional[int] = None
    position: Optional[float] = None
    size: str = ""


def _variants(context: Context) -> list[_Variant]:
    """Returns what is measured, the baseline first."""
    parameters = context.parameters
    options = StepOptions(parameters.precision, parameters.compile, parameters.channels_last, parameters.fused)
    own = _Variant("", options, parameters.batch_size)
    if parameters.compare == "precision":
        return [replace(own, case=name, options=replace(options, precision=name)) for name in PRECISIONS]
    if parameters.compare == "batch":
        sizes = sorted({max(1, round(parameters.batch_size * factor)) for factor in _BATCH_FACTORS})
        return [replace(own, case=f"batch {size}", batch_size=size, position=size) for size in sizes]
    if parameters.compare == "compile":
        return [
            replace(own, case=name, options=replace(options, compile=name == "compiled"))
            for name in ("eager", "compiled")
        ]
    if parameters.compare == "device":
        if context.on_gpu:
            precisions = ("fp32", "bf16") if options.precision == "bf16" else ("fp32",)
            on_cpu = replace(own, device=context.torch.device("cpu"))
            return [
                *(
                    replace(on_cpu, case=f"cpu, {name}", options=replace(options, precision=name, compile=False))
                    for name in precisions
                ),
                replace(own, case=GPU_CASE),
            ]
        threads = context.torch.get_num_threads()
        counts = [replace(own, case=_threads_text(count), threads=count) for count in sorted({1, threads})]
        return [
            *counts,
            replace(counts[-1], case=f"{counts[-1].case}, bf16", options=replace(options, precision="bf16")),
        ]
    return _faster_variants(own, parameters.model_size) if parameters.compare == "faster" else [own]


def _faster_variants(own: _Variant, size: str) -> list[_Variant]:
    """Returns what raises the operations per second: a fused optimizer, compilation, and larger products."""
    compiled = replace(own.options, compile=True)
    both = replace(own, case="compiled, fused", options=replace(compiled, fused=True))
    return [
        replace(own, case="as set"),
        replace(own, case="fused optimizer", options=replace(own.options, fused=True)),
        replace(own, case="compiled", options=compiled),
        both,
        replace(both, case="twice the width", size=f"{size}{TWICE_THE_WIDTH}"),
    ]


def _uses(context: Context) -> Uses:
    """Returns a share of free memory on a GPU, and an estimate on the CPU."""
    parameters = context.parameters
    seconds = len(_variants(context)) * (parameters.duration + _runs(context) * _SECONDS_AROUND)
    if not context.on_gpu:
        return Uses(0, seconds, host_memory_bytes=_HOST_BYTES[parameters.model_size])
    return Uses(int(context.free_memory()[0] * parameters.memory_percent / 100), seconds)


def _runs(context: Context) -> int:
    return 1 if context.parameters.compare == "none" else RUNS


def _run(context: Context) -> Verdict:
    context.cap_memory(_uses(context).memory_bytes)
    model = build(context.torch, context.parameters.model, context.parameters.model_size)
    context.step(
        f"{model.about}: {model.parameter_count / 1e6:.3g} million parameters, {rate_text(model.step_flops, 'FLOP')} "
        "per sample and step. The data are random."
    )
    variants = _variants(context)
    measured: list[tuple[_Variant, Measured]] = []
    notes: list[str] = []
    for done, variant in enumerate(variants):
        if context.stopping:
            break
        context.progress(done, _runs(context) * len(variants))
        try:
            measured.append((variant, _measure(context, model, variant)))
        except VariantError as error:
            notes.append(f"{variant.case}: {error}" if variant.case else str(error))
            context.step(notes[-1])
            continue
        except NotTrainedError as error:
            return context.fail(
                f"{variant.case + ': ' if variant.case else ''}{error} The step did not train the model."
            )
    if not measured:
        return context.fail(" ".join(notes) or "Nothing was measured.")
    if len(measured) > 1:
        try:
            rows = in_turns(
                context, [row for _, row in measured], lambda number: _repeated(context, model, *measured[number])
            )
        except (VariantError, NotTrainedError) as error:
            return context.fail(f"A variant was measured, and not a second time: {error}")
        measured = [(variant, rows[number]) for number, (variant, _) in enumerate(measured)]
    context.progress(len(variants), len(variants))
    for variant, result in measured:
        _add_results(context, variant, result, measured[0][1])
    return _judge(context, model, measured, notes)


def _repeated(context: Context, model: Model, variant: _Variant, first: Measured) -> Measured:
    return _measure(context, model, replace(variant, batch_size=first.batch_size), is_again=True)


def _measure(context: Context, model: Model, variant: _Variant, is_again: bool = False) -> Measured:
    """Measures a variant; the CPU next to a GPU gets a smaller batch if its steps are slow."""
    if variant.size:
        model = build(context.torch, context.parameters.model, variant.size)
    what = options_text(variant.options)
    seconds = context.parameters.duration / _runs(context)
    if not is_again:
        context.step(f"{variant.case + ': ' if variant.case else ''}{what}, batch {variant.batch_size}.")
    if variant.device is not None and not is_again:
        once = measure(context, model, variant.options, 1, 0.0, variant.device)
        size = max(1, min(variant.batch_size, int(_CPU_STEP_SECONDS / once.step_seconds)))
        variant = replace(variant, batch_size=size)
    with _threads(context, variant.threads):
        return measure(context, model, variant.options, variant.batch_size, seconds, variant.device)


@contextmanager
def _threads(context: Context, count: Optional[int]) -> Iterator[None]:
    """Computes with a number of threads on the CPU, and restores it."""
    before = context.torch.get_num_threads()
    context.torch.set_num_threads(count or before)
    try:
        yield
    finally:
        context.torch.set_num_threads(before)


def _add_results(context: Context, variant: _Variant, measured: Measured, baseline: Measured) -> None:
    """Adds one row of results."""
    on_gpu = context.on_gpu and variant.device is None
    peak, source = limit_of(context, variant.options.precision) if on_gpu else (None, "")

    def add(name: str, value: float, limit: Optional[float] = None, limit_source: str = "") -> None:
        context.result(
            name, value, repetitions=measured.repetitions, limit=limit, limit_source=limit_source, case=variant.case,
            position=variant.position,
        )  # fmt: skip

    if context.parameters.compare != "none":
        add("speed_up", measured.samples_per_second / baseline.samples_per_second)
    add("samples", measured.samples_per_second)
    add("steps", 1 / measured.step_seconds)
    add("throughput", measured.flops_per_second / 1e12, peak and peak / 1e12, source)
    for part in PARTS:
        add(part, measured.part_seconds[part] * 1e3)
    if measured.peak_bytes is not None:
        add("peak_memory" if on_gpu else "peak_resident_memory", measured.peak_bytes / 2**20)
    if variant.options.compile:
        add("first_step", measured.first_seconds)
    if variant.options.precision == "fp16":
        add("overflows", measured.overflows)


def _judge(context: Context, model: Model, measured: list[tuple[_Variant, Measured]], notes: list[str]) -> Verdict:
    rows = [(variant.case, result) for variant, result in measured]
    compare = context.parameters.compare
    if compare == "none":
        text = advice(context, rows[0][1])
    elif compare == "faster":
        text = utilization_verdict(rows, limit_of(context, context.parameters.precision)[0])
    elif compare == "device":
        text = device_verdict(context, model, rows, None if context.on_gpu else product_rate(context.torch))
    else:
        text = variants_verdict(compare, rows)
    text = " ".join([text, *notes])
    return context.warn(text) if compare != "none" and len(rows) == 1 else context.ok(text)


def _threads_text(count: int) -> str:
    return f"{count} thread{'s' if count != 1 else ''}"


WORKLOAD = Workload(
    name="train",
    purpose="Trains a CNN, RNN, LSTM, GRU, Transformer or MLP; compares precision, batch, device, torch.compile.",
    needs="A GPU or the CPU.",
    uses=_uses,
    run=_run,
    main_metric="samples",
    metrics=(
        *TRAINING_METRICS,
        DeclaredMetric("speed_up", "x", HIGHER),
        DeclaredMetric("steps", "steps/s", HIGHER),
        DeclaredMetric("first_step", "s", LOWER),
        DeclaredMetric("overflows", "steps", LOWER, format="count"),
        DeclaredMetric("*", "ms", LOWER),
    ),
    parameters=(
        choice("model", "transformer", KINDS, "Kind of model."),
        choice("model_size", "base", SIZES, "Size of the model.", default_cpu="small"),
        integer("batch_size", 32, 1, 65536, "Samples per step.", default_cpu=16),
        choice(
            "precision", "bf16", PRECISIONS, "Precision of the products; fp16 and bf16 by autocast.", default_cpu="fp32"
        ),
        flag("compile", False, "Compile the model with torch.compile."),
        flag("channels_last", False, "Store images with their channels last."),
        flag("fused", False, "Update all weights in one kernel."),
        choice(
            "compare",
            "none",
            ("none", "precision", "batch", "device", "compile", "faster"),
            "Variants to measure in turns.",
        ),
        number("duration", 5, 0.05, 3600, "Duration of the measurement of each variant.", unit="s", default_cpu=1),
        number("memory_percent", 50, 0.1, 95, "Maximum share of free GPU memory.", unit="%"),
    ),
    code=(training_step, prepare, Trainer),
)
