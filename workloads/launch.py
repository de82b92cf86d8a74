"""A custom CUDA kernel, compiled at run time: the best block and grid size, and its occupancy."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Optional

from _kit import HIGHER, DeclaredMetric, UnsupportedError, Uses, Verdict, Workload, integer
from _kit.kernels import compiled, resources_of
from _kit.peaks import peak_memory_bytes
from _kit.timing import device_seconds, hold, median

if TYPE_CHECKING:
    from _kit.context import Context

BLOCKS = (32, 64, 128, 256, 512, 1024)
BLOCKS_PER_SM = (1, 2, 4, 8, 16, 32)
STRIDE_BLOCK = 256
WRONG_BLOCK = 2048
_FLOAT_BYTES = 4
_SPARE_ELEMENTS = 4096
"""Elements after the result that no launch may write."""
_BYTES_PER_ELEMENT = 18
"""Two operands, the result, the expected result, and two bytes for the comparison."""
_SLACK_BYTES = 64 << 20
_WARP = 32
_MIN_SHARE_OF_TORCH = 0.7
_HOST_SECONDS_PER_LAUNCH = 40e-6


def kernel_source() -> str:
    """Returns the CUDA C source of both kernels."""
    return """
extern "C" __global__ void add_one_each(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
extern "C" __global__ void add_grid_stride(const float* a, const float* b, float* c, int n) {
    int step = gridDim.x * blockDim.x;
    for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) c[i] = a[i] + b[i];
}
"""


@dataclass
class Arrays:
    """The operands, the result followed by spare elements, the expected result, and its number of elements."""

    a: Any
    b: Any
    result: Any
    expected: Any
    count: int


@dataclass
class LaunchResults:
    """The results of a run.

    Attributes:
        rates: GB/s by configuration.
        occupancies: Occupancy, 0 to 1, by configuration, where known.
        wrong: Sentences about wrong results.
        is_computed: Whether an occupancy was computed here instead of reported by the driver.
    """

    rates: dict[str, float] = field(default_factory=dict)
    occupancies: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    is_computed: bool = False


def elements_of(requested_millions: int, free_bytes: int) -> int:
    """Returns the number of elements, which no block size divides: requested plus one, or fewer if memory is short.

    Raises:
        UnsupportedError: A quarter of free memory holds less than a million elements.
    """
    room = (free_bytes // 4 - _SLACK_BYTES) // _BYTES_PER_ELEMENT // 1_000_000
    millions = min(requested_millions, room)
    if millions < 1:
        raise UnsupportedError("The free memory of this GPU is not sufficient for a million elements.")
    return millions * 1_000_000 + 1


def computed_blocks_per_sm(threads: int, max_threads: int, registers: Optional[int] = None) -> int:
    """Returns the resident blocks per multiprocessor from its limits on threads, blocks (32) and registers (65,536).

    Args:
        threads: Threads per block.
        max_threads: Maximum resident threads per multiprocessor.
        registers: Registers per thread, or None if unknown.
    """
    warps = -(-threads // _WARP)
    blocks = min(32, max_threads // (warps * _WARP))
    if registers:
        per_warp = -(-registers * _WARP // 256) * 256
        blocks = min(blocks, 65536 // (per_warp * warps))
    return blocks


def occupancy_of(blocks: int, threads: int, max_threads: int) -> float:
    """Returns the occupancy of ``blocks`` resident blocks, 0 to 1; a partial warp counts as a full warp."""
    return min(1.0, blocks * (-(-threads // _WARP)) * _WARP / max_threads)


def verdict_of(context: Context, results: LaunchResults) -> Verdict:
    """Returns the verdict: a wrong result fails, a best configuration well below torch's kernel warns."""
    if results.wrong:
        return context.fail(" ".join(results.wrong))
    custom = {name: rate for name, rate in results.rates.items() if name != "torch_add"}
    if context.cancelled or not custom or "torch_add" not in results.rates:
        return context.warn("Stopped before all launches were measured.")
    best = max(custom, key=lambda name: custom[name])
    share = custom[best] / results.rates["torch_add"]
    summary = f"The best launch is {best.replace('_', ' ')}: {custom[best]:.0f} GB/s"
    if best in results.occupancies:
        source = "computed from the limits of a multiprocessor" if results.is_computed else "reported by the driver"
        summary += f" at an occupancy of {results.occupancies[best]:.0%}, {source}"
    summary += f"; that is {share:.0%} of torch.add."
    return context.ok(summary) if share >= _MIN_SHARE_OF_TORCH else context.warn(summary)


def _occupancy(context: Context, results: LaunchResults, name: str, kernel: Any, grid: int, threads: int) -> None:
    """Gets the resident blocks per multiprocessor from the driver, or computes them if that fails."""
    max_threads = context.chip.max_threads_per_sm if context.chip else None
    if not max_threads:
        return
    blocks, registers = resources_of(kernel, threads)
    results.is_computed = results.is_computed or blocks is None
    resident = computed_blocks_per_sm(threads, max_threads, registers) if blocks is None else blocks
    if context.chip:  # a small grid does not fill all multiprocessors
        resident = min(resident, -(-grid // context.chip.sm_count))
    results.occupancies[name] = occupancy_of(resident, threads, max_threads)
    context.result(f"occupancy_{name}", results.occupancies[name] * 100, repetitions=1)


def _arrays(context: Context, count: int) -> Arrays:
    torch = context.torch
    a, b = (torch.randn(count, device=context.device) for _ in range(2))
    result = torch.empty(count + _SPARE_ELEMENTS, device=context.device)
    return Arrays(a, b, result, a + b, count)


def _check(context: Context, results: LaunchResults, name: str, arrays: Arrays, launch: Callable[[], object]) -> None:
    """Launches once over NaN and checks that the complete result, and nothing after it, was written."""
    torch = context.torch
    arrays.result.fill_(float("nan"))
    launch()
    context.synchronize()
    part = arrays.result[: arrays.count]
    if not torch.equal(part, arrays.expected):
        differs = part != arrays.expected
        first = int(differs.to(torch.uint8).argmax())
        results.wrong.append(f"{name}: {int(differs.sum())} sums are wrong, the first at element {first}.")
    if not bool(torch.isnan(arrays.result[arrays.count :]).all()):
        results.wrong.append(f"{name}: the kernel wrote past the end of the result.")
    context.checked += 1


def _measure(context: Context, results: LaunchResults, name: str, arrays: Arrays, launch: Callable[[], object]) -> None:
    """Checks a launch, then measures it."""
    _check(context, results, name, arrays, launch)
    repetitions = context.parameters.repetitions
    hold(context, repetitions * _HOST_SECONDS_PER_LAUNCH)
    seconds = median(device_seconds(context, launch, repetitions))
    rate = 3 * _FLOAT_BYTES * arrays.count / seconds / 1e9
    results.rates[name] = rate
    context.metric(name, rate)
    peak = None if context.chip is None else peak_memory_bytes(context.chip)
    limit = None if peak is None else peak / 1e9
    context.result(name, rate, repetitions=repetitions, limit=limit, limit_source="bus width x memory clock")


def _sweep(context: Context, results: LaunchResults, kernels: dict[str, Any], arrays: Arrays) -> None:
    torch, n = context.torch, arrays.count
    total = len(BLOCKS) + len(BLOCKS_PER_SM) + 1
    arguments = [arrays.a, arrays.b, arrays.result, n]
    context.step(f"torch.add over {n:,} elements, for comparison.")
    inside = arrays.result[:n]
    _measure(context, results, "torch_add", arrays, lambda: torch.add(arrays.a, arrays.b, out=inside))
    sms = context.chip.sm_count if context.chip else 1
    launches = [(f"block_{block}", "add_one_each", -(-n // block), block) for block in BLOCKS]
    launches += [(f"grid_stride_{k}_per_sm", "add_grid_stride", k * sms, STRIDE_BLOCK) for k in BLOCKS_PER_SM]
    for done, (name, kernel_name, grid, block) in enumerate(launches):
        if context.stopping:
            return
        kernel = kernels[kernel_name]
        context.step(_launch_text(kernel_name, grid, block, n))
        launch = partial(kernel, grid=(grid, 1, 1), block=(block, 1, 1), args=arguments)
        _measure(context, results, name, arrays, launch)
        _occupancy(context, results, name, kernel, grid, block)
        context.progress(done + 2, total)


def _launch_text(kernel_name: str, grid: int, block: int, n: int) -> str:
    if kernel_name == "add_grid_stride":
        return f"{grid:,} blocks of {block} threads; each thread adds every {grid * block:,}th element."
    return (
        f"{grid:,} blocks of {block} threads, one thread per element. {grid * block - n} threads have no element; "
        "`if (i < n)` prevents them from writing past the end."
    )


def _wrong_launch(context: Context, results: LaunchResults, kernel: Any, arrays: Arrays) -> None:
    """Launches a block that no GPU supports: the launch fails, and the CUDA context survives."""
    context.step(f"An invalid launch on purpose: {WRONG_BLOCK} threads per block; the maximum is 1024.")
    arguments = [arrays.a, arrays.b, arrays.result, arrays.count]
    try:
        kernel(grid=(1, 1, 1), block=(WRONG_BLOCK, 1, 1), args=arguments)
    except RuntimeError as error:
        context.error(error)
    else:
        results.wrong.append(f"A block of {WRONG_BLOCK} threads was accepted.")
    context.step("The failed launch had no effect: the next one works.")
    grid = -(-arrays.count // STRIDE_BLOCK)
    launch = partial(kernel, grid=(grid, 1, 1), block=(STRIDE_BLOCK, 1, 1), args=arguments)
    _check(context, results, "after the failed launch", arrays, launch)


def _uses(context: Context) -> Uses:
    count = elements_of(context.parameters.elements_millions, context.free_memory()[0])
    memory = count * _BYTES_PER_ELEMENT + _SLACK_BYTES
    return Uses(memory, 5 + 13 * context.parameters.repetitions * memory / 1e12)


def _run(context: Context) -> Verdict:
    count = elements_of(context.parameters.elements_millions, context.free_memory()[0])
    context.cap_memory(context.memory()["reserved_bytes"] + count * _BYTES_PER_ELEMENT + _SLACK_BYTES)
    arrays = _arrays(context, count)
    context.step("Compiling a vector addition in CUDA C with NVRTC.")
    kernels = compiled(context, kernel_source(), ("add_one_each", "add_grid_stride"))
    results = LaunchResults()
    _sweep(context, results, kernels, arrays)
    if not context.stopping:
        _wrong_launch(context, results, kernels["add_one_each"], arrays)
    custom = [rate for name, rate in results.rates.items() if name != "torch_add"]
    if custom:
        context.result("best", max(custom), repetitions=context.parameters.repetitions)
    return verdict_of(context, results)


WORKLOAD = Workload(
    name="launch",
    purpose="Compiles a custom CUDA kernel at run time and measures block sizes, grid sizes and occupancy.",
    needs="A GPU with CUDA, torch 2.9 or later with NVRTC, and 1.2 GiB of GPU memory at the default size.",
    why_not_cpu="launch measures a CUDA kernel, which needs a GPU.",
    uses=_uses,
    run=_run,
    main_metric="best",
    code=(kernel_source, _sweep, _measure, device_seconds),
    metrics=(DeclaredMetric("occupancy_*", "%"), DeclaredMetric("*", "GB/s", HIGHER)),
    parameters=(
        integer("elements_millions", 64, 1, 500, "Millions of elements.", unit="million"),
        integer("repetitions", 20, 3, 500, "Timed launches per configuration."),
    ),
)
