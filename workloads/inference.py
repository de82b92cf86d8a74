"""Inference: latency, throughput and memory of one model, step by step from a training loop's forward pass."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from _kit import HIGHER, LOWER, DeclaredMetric, Uses, Verdict, Workload, choice, integer, number
from _kit.host import busy_notes
from _kit.models import KINDS, SIZES, Model, build
from _kit.timing import host_seconds
from _kit.training_run import VariantError, free_memory

if TYPE_CHECKING:
    from _kit.context import Context

_WARM_UPS = 5
_MAX_DISTANCE = {"fp32": 1e-3, "bf16": 5e-2}
"""Largest distance of the outputs from those of fp32 with gradients, relative to the largest output."""
_MIN_GAIN = 1.05
_HOST_BYTES = 4 << 30


@dataclass(frozen=True)
class _InferenceVariant:
    """One way to compute the outputs of a batch."""

    case: str
    batch_size: int = 1
    is_inference: bool = True
    precision: str = "fp32"
    compiles: bool = False
    uses_graph: bool = False


@dataclass(frozen=True)
class _Latencies:
    """Seconds of each call until its outputs are there, sorted, and what a queue of calls achieves."""

    latencies: list[float]
    samples_per_second: float
    peak_bytes: int

    def percentile(self, percent: float) -> float:
        """Returns the latency that this share of the calls does not exceed."""
        return self.latencies[min(len(self.latencies) - 1, int(len(self.latencies) * percent / 100))]


def _variants(context: Context) -> list[_InferenceVariant]:
    many = context.parameters.batch_size
    variants = [
        _InferenceVariant("with gradients", is_inference=False),
        _InferenceVariant("inference_mode"),
        _InferenceVariant("bf16", precision="bf16"),
    ]
    if context.on_gpu:  # on the CPU, the compilation takes longer than everything else
        variants.append(_InferenceVariant("bf16, compiled", precision="bf16", compiles=True))
        variants.append(_InferenceVariant("bf16, CUDA graph", precision="bf16", uses_graph=True))
    return [*variants, _InferenceVariant(f"bf16, batch {many}", many, precision="bf16")]


def forward(torch: Any, module: Any, batch: Any, variant: _InferenceVariant) -> Callable[[], Any]:
    """Returns a function that computes the outputs of a batch; for a CUDA graph, it replays the captured kernels."""
    if variant.compiles:
        module = torch.compile(module)

    def call() -> Any:
        with torch.inference_mode() if variant.is_inference else nullcontext():
            return module(batch)

    if not variant.uses_graph:
        return call
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UPS):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        outputs = call()

    def replay() -> Any:
        graph.replay()
        return outputs

    return replay


def _measure(context: Context, model: Model, variant: _InferenceVariant, reference: Any) -> _Latencies:
    """Measures a variant and checks its outputs.

    Raises:
        ArithmeticError: The outputs differ from the reference.
        VariantError: torch.compile has no compiler here.
    """
    torch = context.torch
    if context.on_gpu:
        torch.cuda.reset_peak_memory_stats()
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[variant.precision]
    module = copy.deepcopy(model.module).eval().to(context.device, dtype)
    batch = _inputs(context, model, variant.batch_size, dtype)
    try:
        call = forward(torch, module, batch, variant)
        for _ in range(_WARM_UPS):
            outputs = call()
    except Exception as error:
        if not variant.compiles:
            raise
        raise VariantError(f"{variant.case} cannot run here: {(str(error).splitlines() or ['no text'])[0]}") from error
    distance = float((outputs[:1].float() - reference).abs().max() / reference.abs().max())
    if not distance <= _MAX_DISTANCE[variant.precision]:
        raise ArithmeticError(f"{variant.case}: the outputs differ from those of fp32 by {distance:.1%}.")
    context.checked += 1
    latencies: list[float] = []
    until = time.monotonic() + context.parameters.duration / 2
    while len(latencies) < _WARM_UPS or (time.monotonic() < until and not context.stopping):
        latencies.append(host_seconds(context, call)[1])
    calls = len(latencies)

    def call_all() -> None:
        for _ in range(calls):
            call()  # nothing is kept: with gradients, outputs hold the activations of all layers

    queued = host_seconds(context, call_all)[1]
    peak = torch.cuda.max_memory_allocated() if context.on_gpu else 0
    return _Latencies(sorted(latencies), calls * variant.batch_size / queued, int(peak))


def _inputs(context: Context, model: Model, size: int, dtype: Any) -> Any:
    inputs = model.make_batch(size, 1)[0].to(context.device)
    return inputs.to(dtype) if inputs.is_floating_point() else inputs


def _uses(context: Context) -> Uses:
    seconds = len(_variants(context)) * (context.parameters.duration + 2)
    if not context.on_gpu:
        return Uses(0, seconds, host_memory_bytes=_HOST_BYTES)
    return Uses(int(context.free_memory()[0] * context.parameters.memory_percent / 100), seconds)


def _run(context: Context) -> Verdict:
    context.cap_memory(_uses(context).memory_bytes)
    model = build(context.torch, context.parameters.model, context.parameters.model_size)
    rows: list[tuple[_InferenceVariant, _Latencies]] = []
    notes = busy_notes() if context.on_gpu else []
    context.step(f"{model.about}, {model.parameter_count / 1e6:.3g} million parameters, on random inputs.")
    with context.torch.inference_mode():
        module = copy.deepcopy(model.module).eval().to(context.device)
        reference = module(_inputs(context, model, 1, context.torch.float32)).float()
    variants, problem = _variants(context), ""
    for done, variant in enumerate(variants):
        if context.stopping:
            break
        context.progress(done, len(variants))
        context.step(f"{variant.case}: the latency of single calls, then as many calls in a queue.")
        try:
            rows.append((variant, _measure(context, model, variant, reference)))
        except VariantError as error:
            notes.append(str(error))
        except ArithmeticError as error:
            problem = str(error)
            break
        finally:
            free_memory(context.torch)
    for variant, measured in rows:
        _add_results(context, variant, measured)
    context.progress(len(variants), len(variants))
    return context.fail(problem) if problem else context.ok(" ".join([_advice(rows), *notes]))


def _add_results(context: Context, variant: _InferenceVariant, measured: _Latencies) -> None:
    count = len(measured.latencies)
    for percent in (50, 95, 99):
        value = measured.percentile(percent) * 1e3
        context.result(f"latency_p{percent}", value, repetitions=count, case=variant.case)
    context.result("throughput", measured.samples_per_second, repetitions=count, case=variant.case)
    if measured.peak_bytes:
        context.result("peak_memory", measured.peak_bytes / 2**20, repetitions=count, case=variant.case)


def _advice(rows: list[tuple[_InferenceVariant, _Latencies]]) -> str:
    """Returns what shortens a call, and what batching gains."""
    single = [row for row in rows if row[0].batch_size == 1]
    if not single:
        return "Stopped before anything was measured."
    base, (best, measured) = single[0][1], min(single, key=lambda row: row[1].percentile(50))
    gain = base.percentile(50) / measured.percentile(50)
    text = (
        f"For the shortest latency, use {best.case}: {measured.percentile(50) * 1e3:.3g} ms, {gain:.2f}x faster than "
    )
    text += "with gradients."
    if gain < _MIN_GAIN or measured.percentile(95) > base.percentile(50):
        text = f"Nothing shortens a call of {base.percentile(50) * 1e3:.3g} ms beyond the spread of the calls."
    variant, many = rows[-1]
    if variant.batch_size > 1:
        text += (
            f" For throughput, collect requests: {variant.case} computes {many.samples_per_second:,.4g} samples/s, "
            f"{many.samples_per_second / base.samples_per_second:.1f}x as many, and a request waits for "
            f"{many.percentile(95) * 1e3:.3g} ms (p95)."
        )
    return text


WORKLOAD = Workload(
    name="inference",
    purpose="Latency percentiles, throughput and memory of inference: batching, inference_mode, bf16, compile, graphs.",
    needs="A GPU or the CPU.",
    uses=_uses,
    run=_run,
    main_metric="throughput",
    code=(forward, _measure),
    metrics=(
        DeclaredMetric("latency_*", "ms", LOWER),
        DeclaredMetric("throughput", "samples/s", HIGHER),
        DeclaredMetric("peak_memory", "MiB", LOWER),
    ),
    parameters=(
        choice("model", "transformer", KINDS, "Kind of model."),
        choice("model_size", "base", SIZES, "Size of the model.", default_cpu="tiny"),
        integer("batch_size", 32, 2, 4096, "Samples of the batched case.", default_cpu=8),
        number("duration", 2, 0.05, 600, "Duration of each case.", unit="s", default_cpu=0.4),
        number("memory_percent", 25, 0.1, 95, "Maximum share of free GPU memory.", unit="%"),
    ),
)
