"""CPU against GPU: from which size twelve operations gain from the GPU, without and with the copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Optional

from _kit import DeclaredMetric, Uses, Verdict, Workload, integer
from _kit.timing import host_seconds, median

if TYPE_CHECKING:
    from _kit.context import Context

_REPETITIONS = 5
_MAX_SECONDS = 0.25
"""An operation that takes longer on the CPU is not measured with a larger size."""
_FIRST_POWER = 8
_TOLERANCE = 1e-2
"""Largest difference of a result between CPU and GPU, relative to the largest value."""


def operations(torch: Any) -> dict[str, tuple[Callable[[int], Any], Callable[[Any], Any]]]:
    """Returns how to make the input of about n elements, and what to compute, by name."""
    functional = torch.nn.functional

    def vector(n: int) -> Any:
        return torch.rand(n)

    def square(n: int) -> Any:
        side = max(8, int(n**0.5) // 8 * 8)
        return torch.rand(side, side)

    def images(n: int) -> Any:
        side = max(8, int((n / 16) ** 0.5))
        return torch.rand(1, 16, side, side)

    return {
        "addition": (vector, lambda x: x + x),
        "exponential": (vector, lambda x: x.exp()),
        "sum": (vector, lambda x: x.sum(0, keepdim=True)),
        "cumulative sum": (vector, lambda x: x.cumsum(0) / len(x)),
        "sort": (vector, lambda x: x.sort().values),
        "gather": (vector, lambda x: x[torch.arange(len(x) - 1, -1, -1, device=x.device)]),
        "softmax": (square, lambda x: x.softmax(1)),
        "layer normalization": (square, lambda x: functional.layer_norm(x, x.shape[-1:])),
        "matrix-vector product": (square, lambda x: x @ x[0]),
        "matrix product": (square, lambda x: x @ x),
        "convolution": (
            images,
            lambda x: functional.conv2d(x, x[0, :, None, :3, :3].expand(-1, 16, -1, -1), padding=1),
        ),
        "FFT": (vector, lambda x: torch.fft.rfft(x).abs()),
    }


def crossover(sizes: Sequence[int], cpu: Sequence[float], gpu: Sequence[float]) -> Optional[int]:
    """Returns the smallest size from which the GPU is always faster, or None."""
    first = None
    for size, on_cpu, on_gpu in zip(sizes, cpu, gpu):
        if on_gpu >= on_cpu:
            first = None
        elif first is None:
            first = size
    return first


def measured(context: Context, name: str, size: int) -> tuple[float, float, float, bool]:
    """Returns the seconds on the CPU, on the GPU, and on the GPU with both copies, and whether the results agree."""
    make, compute = operations(context.torch)[name]
    context.torch.manual_seed(20260)
    on_cpu = make(size)
    on_gpu = on_cpu.to(context.device)

    def seconds(work: Callable[[], object]) -> float:
        work()
        return median([host_seconds(context, work)[1] for _ in range(_REPETITIONS)])

    expected, actual = compute(on_cpu), compute(on_gpu).cpu()
    agrees = bool((expected - actual).abs().max() <= _TOLERANCE * expected.abs().max())
    with_copies = seconds(lambda: compute(on_cpu.to(context.device)).cpu())
    return seconds(lambda: compute(on_cpu)), seconds(lambda: compute(on_gpu)), with_copies, agrees


def _sizes(context: Context) -> list[int]:
    return [1 << power for power in range(_FIRST_POWER, context.parameters.largest_power + 1, 2)]


def _uses(context: Context) -> Uses:
    size = 16 * 4 * _sizes(context)[-1]
    return Uses(size + (256 << 20), 90, size)


def _run(context: Context) -> Verdict:
    context.cap_memory(_uses(context).memory_bytes)
    names, wrong, texts = list(operations(context.torch)), [], []
    for done, name in enumerate(names):
        sizes: list[int] = []
        cpu: list[float] = []
        gpu: list[float] = []
        copied: list[float] = []
        for size in _sizes(context):
            if context.stopping or (cpu and cpu[-1] > _MAX_SECONDS):
                break
            times = measured(context, name, size)
            context.checked += 1
            wrong += [] if times[3] else [f"{name} of {size}"]
            for values, value in zip((cpu, gpu, copied), times):
                values.append(value)
            sizes.append(size)
        if context.stopping or not sizes:
            break
        texts.append(_add_results(context, name, sizes, (cpu, gpu, copied)))
        context.step(texts[-1])
        context.progress(done + 1, len(names))
    if wrong:
        return context.fail(f"CPU and GPU disagree: {', '.join(wrong)}.")
    never = [text.partition(":")[0] for text in texts if "with both copies never" in text]
    text = f"Of {len(texts)} operations, {len(texts) - len(never)} gain from the GPU with both copies"
    text += f", and these do not: {', '.join(never)}" if never else ""
    return context.ok(f"{text}. Keep data on the GPU between operations: the copies decide.")


def _add_results(
    context: Context, name: str, sizes: list[int], times: tuple[list[float], list[float], list[float]]
) -> str:
    """Adds the crossover sizes of an operation; returns a sentence."""
    cpu, gpu, copied = times
    here, with_copies = crossover(sizes, cpu, gpu), crossover(sizes, cpu, copied)
    if here is not None:
        context.result("from_elements", here, repetitions=_REPETITIONS * len(sizes), case=name)
    if with_copies is not None:
        context.result("from_elements_with_copies", with_copies, repetitions=_REPETITIONS * len(sizes), case=name)
    context.result("speed_up", cpu[-1] / gpu[-1], repetitions=_REPETITIONS, case=name)
    context.result("speed_up_with_copies", cpu[-1] / copied[-1], repetitions=_REPETITIONS, case=name)
    alone, both = ("never" if size is None else f"from {size:,} elements" for size in (here, with_copies))
    return (
        f"{name}: the GPU is faster {alone}, with both copies {both}; "
        f"at {sizes[-1]:,}, {cpu[-1] / gpu[-1]:.3g}x and {cpu[-1] / copied[-1]:.3g}x."
    )


WORKLOAD = Workload(
    name="compare",
    purpose="From which size twelve operations gain from the GPU, without and with copies to and from the host.",
    needs="A GPU, and an idle CPU.",
    why_not_cpu="compare compares the CPU with a GPU.",
    uses=_uses,
    run=_run,
    main_metric="speed_up",
    code=(operations, measured, crossover),
    metrics=(DeclaredMetric("from_*", "elements", "lower", format="count"), DeclaredMetric("speed_up*", "x", "higher")),
    parameters=(integer("largest_power", 24, 10, 28, "The largest size is 2 to this power."),),
)
