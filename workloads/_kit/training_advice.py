"""What to do with the measurements of a training run, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from _kit.models import Model
from _kit.training_run import Measured, change_of, is_faster, limit_of, options_text

if TYPE_CHECKING:
    from _kit.context import Context

GPU_CASE = "gpu"
"""The row of the GPU next to those of the CPU."""
_LARGE_PART = 0.2
"""Share of a step from which a part other than forward and backward is worth removing."""
_LOW_SHARE = 0.3
_HIGH_SHARE = 0.5
"""Shares of the peak below which a GPU can do more, and from which arithmetic limits a CPU."""
_NEAR = 0.95
"""A variant this near to the fastest is as fast."""
KNEE = 0.9
"""The knee of a sweep is the smallest batch with this share of the best throughput."""
_ADAM_BYTES = 16
"""Bytes per parameter for weight, gradient and the two states of Adam, in float32."""
_SAMPLES = 1_000_000
_PREFERRED = ("bf16", "tf32", "fp16", "fp32")
"""Of precisions that are equally fast, the earlier one: bf16 needs no loss scaling, fp16 does."""


def advice(context: Context, measured: Measured) -> str:
    """Returns speed, parts and a recommendation for a single measurement."""
    options, total = measured.options, sum(measured.part_seconds.values())
    shares = {name: seconds / total for name, seconds in measured.part_seconds.items()}
    peak = limit_of(context, options.precision)[0]
    share = None if peak is None else measured.flops_per_second / peak
    speed = f"{options_text(options)}, batch {measured.batch_size}: {measured.samples_per_second:,.4g} samples/s, "
    speed += rate_text(measured.flops_per_second)
    speed += "" if share is None else f", {share:.0%} of the peak at the maximum clock"
    parts = ", ".join(f"{name} {part:.0%}" for name, part in shares.items())
    if not context.on_gpu:
        what = "To see what limits this CPU, run with compare=device; for the best precision, with compare=precision."
    elif shares["data"] > _LARGE_PART:
        what = "The copy of the batch is a large part: overlap it with the computation (gpumon run overlap)."
    elif shares["optimizer"] > _LARGE_PART and not options.fused:
        what = "The optimizer is a large part: set fused=yes, or use a larger batch."
    elif options.precision == "fp32":
        what = "fp32 leaves the tensor cores unused: compare=precision shows what they save."
    elif share is not None and share < _HIGH_SHARE:
        larger = "find a larger batch (gpumon run batch), and " if share < _LOW_SHARE else ""
        unused = [
            *["torch.compile"] * (not options.compile),
            *["a fused optimizer"] * (not options.fused),
            "a wider model",
        ]
        what = f"The GPU can do more: {larger}set compare=faster, which measures {', '.join(unused)}."
    else:
        what = "Keep these settings."
    return f"{speed}. Of a step: {parts}. {what}"


def variants_verdict(compare: str, rows: list[tuple[str, Measured]]) -> str:
    """Returns which variant to use.

    Args:
        compare: ``precision``, ``batch`` or ``compile``.
        rows: Case and measurement of each variant, the baseline first.
    """
    if len(rows) == 1:
        case, only = rows[0]
        return f"Only {case} could be measured: {only.samples_per_second:,.4g} samples/s."
    base_case, base = rows[0]
    better = [rows[0], *(row for row in rows[1:] if is_faster(row[1], base))]
    best = max(only.samples_per_second for _, only in better)
    if compare == "batch":
        case, chosen = next(row for row in better if row[1].samples_per_second >= KNEE * best)
        gain = "" if chosen is base else f", {_faster(chosen, base, base_case)}"
        return (
            f"Use {case}: {chosen.samples_per_second:,.4g} samples/s, {chosen.samples_per_second / best:.0%} of the "
            f"best{gain}. Larger batches cost memory for little speed; gpumon run batch finds the largest that fits."
        )
    near = [row for row in better if row[1].samples_per_second >= _NEAR * best]
    if compare == "precision":
        near.sort(key=lambda row: _PREFERRED.index(row[1].options.precision))
    case, chosen = near[0]
    if compare == "compile" and case == "compiled":
        return f"Use torch.compile: {_faster(chosen, base, base_case)}. {_pays_off(chosen, base)}"
    if compare == "compile":
        return f"Stay with eager: compiled is {_faster(rows[1][1], base, base_case)}."
    if case == base_case:
        return f"Stay with {case}: no other precision is shown to be faster here."
    return f"Use {case}: {_faster(chosen, base, base_case)}{_memory_text(chosen, base)}."


def utilization_verdict(rows: list[tuple[str, Measured]], peak: Optional[float]) -> str:
    """Returns what raises the operations per second, and by how much.

    Args:
        rows: Case and measurement of each variant, the settings of the run first.
        peak: Operations per second at the maximum clock; None if unknown, as on the CPU.
    """
    base = rows[0][1]

    def text(case: str, measured: Measured) -> str:
        rate = measured.flops_per_second
        share = f"{rate / base.flops_per_second:.2f}x"
        share = share if peak is None else f"{rate / peak:.0%} of the peak, {share}"
        interval = "" if measured is base else _interval(measured, base)
        return f"{case} {share} ({interval})" if interval else f"{case} {share}"

    better = [row for row in rows[1:] if row[1].flops_per_second * _NEAR >= base.flops_per_second]
    better = [row for row in better if is_faster(row[1], base)]
    measured = "; ".join(text(*row) for row in rows)
    if not better:
        return f"Nothing raises the utilization here: {measured}. Find a larger batch with gpumon run batch."
    best = max(better, key=lambda row: row[1].flops_per_second)
    return f"Most is gained by: {best[0]}. Operations per second, by variant: {measured}."


def device_verdict(context: Context, model: Model, rows: list[tuple[str, Measured]], product: Optional[float]) -> str:
    """Returns how GPU and CPU compare, or on a host without a GPU what limits the CPU and what a GPU must deliver.

    Args:
        context: The run.
        model: The model.
        rows: Case and measurement of each variant.
        product: Operations per second of a large matrix product on the CPU; None if a GPU is there.
    """
    on_cpu = [row for row in rows if row[0] != GPU_CASE]
    case, best = max(on_cpu or rows, key=lambda row: row[1].samples_per_second)
    if product is None:
        return _gpu_against_cpu(context, rows, case, best)
    speed = f"{best.samples_per_second:,.4g} samples/s ({case}), {rate_text(best.flops_per_second)}"
    duration = _duration_text(_SAMPLES / best.samples_per_second)
    sentences = [f"This CPU trains {speed}: {_SAMPLES:,} samples take {duration}."]
    halves = [row for _, row in rows if row.options.precision == "bf16"]
    plain = [(name, row) for name, row in rows if row not in halves]
    fastest = max((row for _, row in plain), key=lambda row: row.samples_per_second, default=best)
    if len(plain) > 1:
        (one, first), (several, second) = plain[0], plain[-1]
        sentences.append(f"{several} are {_faster(second, first, one)}.")
        if second.samples_per_second < first.samples_per_second * _NEAR and is_faster(first, second):
            sentences.append("Use fewer threads: torch.set_num_threads(1).")
    if halves and plain:
        is_better = halves[0].samples_per_second * _NEAR > fastest.samples_per_second and is_faster(halves[0], fastest)
        what = f"bf16 is {_faster(halves[0], fastest, 'fp32')}: use it."
        sentences.append(what if is_better else "bf16 is not faster on this CPU.")
    share = fastest.flops_per_second / product
    reached = f"{fastest.options.precision} reaches {share:.0%} of a large matrix product on this CPU"
    if share >= _HIGH_SHARE:
        sentences.append(f"Arithmetic limits it: {reached}.")
    else:
        sentences.append(f"Small layers and memory limit it, not arithmetic: {reached}. Try a larger batch_size.")
    least = _ADAM_BYTES * model.parameter_count / 2**20
    sentences.append(
        f"A GPU is 10x faster if it sustains {rate_text(10 * best.flops_per_second)} in this job; it must hold "
        f"{least:,.3g} MiB for weights, gradients and optimizer, and the activations. Run the same command there."
    )
    return " ".join(sentences)


def _gpu_against_cpu(context: Context, rows: list[tuple[str, Measured]], case: str, cpu: Measured) -> str:
    gpu = next((row for name, row in rows if name == GPU_CASE), None)
    if gpu is None or case == GPU_CASE:
        return f"Only {case} could be measured: {cpu.samples_per_second:,.4g} samples/s."
    ratio = gpu.samples_per_second / cpu.samples_per_second
    threads = context.torch.get_num_threads()
    batch = "" if cpu.batch_size == gpu.batch_size else f", batch {cpu.batch_size}"
    text = f"{gpu.samples_per_second:,.4g} samples/s on the GPU ({options_text(gpu.options)}), "
    text += f"{cpu.samples_per_second:,.4g} on the CPU ({cpu.options.precision}, {threads} threads{batch})"
    if ratio < 1 / _NEAR or not is_faster(gpu, cpu):
        return f"Train this model on the CPU, or use a larger batch: {text}."
    interval = f" ({_interval(gpu, cpu)})" if gpu.runs else ""
    hours = _duration_text(_SAMPLES / cpu.samples_per_second), _duration_text(_SAMPLES / gpu.samples_per_second)
    return (
        f"Train on the GPU, {ratio:,.3g}x faster{interval}: {text}. {_SAMPLES:,} samples take {hours[1]} instead of "
        f"{hours[0]}."
    )


def _faster(chosen: Measured, base: Measured, base_case: str) -> str:
    """Returns how the speeds compare, with the interval of 95 % if both ran in turns."""
    change = change_of(base, chosen)
    if change is not None and not change.is_shown:
        return f"not shown to differ from {base_case} ({_interval(chosen, base)} its speed)"
    fast, slow, word = (chosen, base, "faster") if is_faster(chosen, base) else (base, chosen, "slower")
    change = change_of(slow, fast)
    if change is None:
        return f"{fast.flops_per_second / slow.flops_per_second:.2f}x {word} than {base_case}"
    return f"{1 / (1 + change.change):.2f}x {word} than {base_case} ({_interval(fast, slow)})"


def _interval(new: Measured, base: Measured) -> str:
    """Returns the interval of the ratio of two speeds; empty if they did not run in turns."""
    change = change_of(base, new)
    return "" if change is None else f"{1 / (1 + change.high):.2f}x to {1 / (1 + change.low):.2f}x"


def _memory_text(chosen: Measured, base: Measured) -> str:
    if not chosen.peak_bytes or not base.peak_bytes:
        return ""
    return f", with {chosen.peak_bytes / base.peak_bytes:.0%} of its peak memory"


def _pays_off(compiled: Measured, eager: Measured) -> str:
    """Returns after how many steps the time of the compilation is won back."""
    saved = eager.step_seconds - compiled.step_seconds
    extra = max(0.0, compiled.first_seconds - eager.first_seconds)
    return f"The first step takes {extra:.3g} s longer, which {extra / saved:,.0f} steps win back."


def rate_text(rate: float, unit: str = "FLOP/s") -> str:
    """Returns a number of operations, or of operations per second, with a suitable prefix."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if rate >= factor:
            return f"{rate / factor:.3g} {prefix}{unit}"
    return f"{rate:.3g} {unit}"


def _duration_text(seconds: float) -> str:
    for length, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.2g} {unit}"
    return f"{seconds:.2g} s"
