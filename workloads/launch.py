"""A CUDA kernel of one's own, compiled at run time: which block and grid size suits it, at what occupancy."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Optional

from _kit import NotHereError, Uses, Verdict, Workload, integer
from _kit.peaks import peak_memory_bytes
from _kit.timing import device_seconds, hold, median

if TYPE_CHECKING:
    from _kit.context import Context

SOURCE = """
extern "C" __global__ void add_one_each(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
extern "C" __global__ void add_grid_stride(const float* a, const float* b, float* c, int n) {
    int step = gridDim.x * blockDim.x;
    for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) c[i] = a[i] + b[i];
}
"""
BLOCKS = (32, 64, 128, 256, 512, 1024)
BLOCKS_PER_SM = (1, 2, 4, 8, 16, 32)
STRIDE_BLOCK = 256
WRONG_BLOCK = 2048
_FLOAT_BYTES = 4
_SPARE_ELEMENTS = 4096
"""Elements behind the result that no launch may touch."""
_BYTES_PER_ELEMENT = 18
"""Two terms, a result and what torch says it is, and a byte or two for comparing them."""
_SLACK_BYTES = 64 << 20
_REGISTERS_ATTRIBUTE = 4
_WARP = 32
_LEAST_OF_TORCH = 0.7
_HOST_SECONDS_PER_LAUNCH = 40e-6


@dataclass
class Arrays:
    """What is added, the result with spare elements behind it, what the result should be, and its length."""

    a: Any
    b: Any
    result: Any
    expected: Any
    count: int


@dataclass
class Found:
    """What a run has found.

    Attributes:
        rates: GB/s by configuration.
        occupancies: Share of the threads that a multiprocessor can hold, 0 to 1, by configuration, where known.
        wrong: Sentences on wrong results.
        computed: Whether an occupancy was computed here and not told by the driver.
    """

    rates: dict[str, float] = field(default_factory=dict)
    occupancies: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    computed: bool = False


def elements_of(wanted_millions: int, free_bytes: int) -> int:
    """How many elements are added: one more than wanted, so that no block size divides it; less if memory is short.

    Raises:
        NotHereError: A quarter of the free memory does not hold even a million.
    """
    room = (free_bytes // 4 - _SLACK_BYTES) // _BYTES_PER_ELEMENT // 1_000_000
    millions = min(wanted_millions, room)
    if millions < 1:
        raise NotHereError("There is too little free memory on this GPU to add even a million numbers.")
    return millions * 1_000_000 + 1


def computed_blocks_per_sm(threads: int, max_threads: int, registers: Optional[int] = None) -> int:
    """Blocks that one multiprocessor holds at once, from its limits on threads, blocks (32) and registers (65 536).

    Args:
        threads: Threads of a block.
        max_threads: Threads that a multiprocessor holds at once.
        registers: Registers of a thread, or None where that is not known.
    """
    warps = -(-threads // _WARP)
    blocks = min(32, max_threads // (warps * _WARP))
    if registers:
        per_warp = -(-registers * _WARP // 256) * 256
        blocks = min(blocks, 65536 // (per_warp * warps))
    return blocks


def occupancy_of(blocks: int, threads: int, max_threads: int) -> float:
    """Share of a multiprocessor's threads that ``blocks`` blocks fill, 0 to 1; a warp that is not full counts whole."""
    return min(1.0, blocks * (-(-threads // _WARP)) * _WARP / max_threads)


def verdict_of(context: Context, found: Found) -> Verdict:
    """The verdict: a wrong result fails, a best configuration well below torch's own kernel warns."""
    if found.wrong:
        return context.fail(" ".join(found.wrong))
    ours = {name: rate for name, rate in found.rates.items() if name != "torch_add"}
    if context.cancelled or not ours or "torch_add" not in found.rates:
        return context.warn("It ended before all launches were measured.")
    best = max(ours, key=lambda name: ours[name])
    share = ours[best] / found.rates["torch_add"]
    said = f"The best launch is {best.replace('_', ' ')}: {ours[best]:.0f} GB/s"
    if best in found.occupancies:
        how = "computed from the limits of a multiprocessor" if found.computed else "as the driver tells it"
        said += f" at an occupancy of {found.occupancies[best]:.0%}, {how}"
    said += f"; that is {share:.0%} of torch's own a + b."
    return context.ok(said) if share >= _LEAST_OF_TORCH else context.warn(said)


def _compiled(context: Context) -> dict[str, Any]:
    """Both kernels.

    Raises:
        NotHereError: This torch, or what it stands on, cannot compile at run time.
    """
    torch = context.torch
    compiler = getattr(torch.cuda, "_compile_kernel", None)
    if compiler is None:
        raise NotHereError(
            f"torch {torch.__version__} cannot compile a CUDA kernel at run time (torch.cuda._compile_kernel came with "
            "torch 2.9). Choose a newer torch with --python."
        )
    # torch insists on a value before it looks for headers, and these kernels include none.
    os.environ.setdefault("CUDA_HOME", "/nonexistent")
    try:
        return {name: compiler(SOURCE, name) for name in ("add_one_each", "add_grid_stride")}
    except (ImportError, OSError, AttributeError) as error:
        raise NotHereError(
            f"This torch cannot compile a CUDA kernel here: {error}. It needs NVRTC (the package nvidia-cuda-nvrtc), "
            "and setuptools."
        ) from error
    except RuntimeError as error:
        raise NotHereError(f"NVRTC could not compile the kernel: {str(error)[:600]}") from error


def _occupancy(context: Context, found: Found, name: str, kernel: Any, grid: int, threads: int) -> None:
    """Asks the driver how many blocks a multiprocessor holds; computes it where it cannot be asked."""
    most = context.chip.max_threads_per_sm if context.chip else None
    if not most:
        return
    blocks, registers = ctypes.c_int(), ctypes.c_int()
    handle = getattr(kernel, "func", None)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        asked = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
        told = handle is not None and not asked(ctypes.byref(blocks), handle, threads, ctypes.c_size_t(0))
        if not told and handle is not None:
            driver.cuFuncGetAttribute(ctypes.byref(registers), _REGISTERS_ATTRIBUTE, handle)
    except (OSError, AttributeError, ctypes.ArgumentError):
        told = False
    if not told:
        found.computed = True
    held = blocks.value if told else computed_blocks_per_sm(threads, most, registers.value or None)
    if context.chip:  # a small grid leaves room that the kernel could use
        held = min(held, -(-grid // context.chip.sm_count))
    found.occupancies[name] = occupancy_of(held, threads, most)
    context.figure(f"occupancy_{name}", found.occupancies[name] * 100, "%", 1)


def _arrays(context: Context, count: int) -> Arrays:
    torch = context.torch
    a, b = (torch.randn(count, device=context.device) for _ in range(2))
    result = torch.empty(count + _SPARE_ELEMENTS, device=context.device)
    return Arrays(a, b, result, a + b, count)


def _check(context: Context, found: Found, name: str, arrays: Arrays, launch: Callable[[], object]) -> None:
    """Launches once over NaN, and looks whether all of the result and nothing behind it was written."""
    torch = context.torch
    arrays.result.fill_(float("nan"))
    launch()
    context.synchronize()
    part = arrays.result[: arrays.count]
    if not torch.equal(part, arrays.expected):
        differs = part != arrays.expected
        first = int(differs.to(torch.uint8).argmax())
        found.wrong.append(f"{name}: {int(differs.sum())} sums are wrong, the first at element {first}.")
    if not bool(torch.isnan(arrays.result[arrays.count :]).all()):
        found.wrong.append(f"{name}: it wrote behind the end of the result.")
    context.checked += 1


def _measure(context: Context, found: Found, name: str, arrays: Arrays, launch: Callable[[], object]) -> None:
    """Checks a launch, then times it."""
    _check(context, found, name, arrays, launch)
    repetitions = context.parameters.repetitions
    hold(context, repetitions * _HOST_SECONDS_PER_LAUNCH)
    seconds = median(device_seconds(context, launch, repetitions))
    rate = 3 * _FLOAT_BYTES * arrays.count / seconds / 1e9
    found.rates[name] = rate
    context.metric(name, rate, "GB/s")
    peak = None if context.chip is None else peak_memory_bytes(context.chip)
    limit = None if peak is None else peak / 1e9
    context.figure(name, rate, "GB/s", repetitions, limit=limit, limit_source="bus width x memory clock")


def _sweep(context: Context, found: Found, kernels: dict[str, Any], arrays: Arrays) -> None:
    torch, n = context.torch, arrays.count
    total = len(BLOCKS) + len(BLOCKS_PER_SM) + 1
    given = [arrays.a, arrays.b, arrays.result, n]
    context.step(f"torch's own a + b over {n:,} numbers, to compare with.")
    inside = arrays.result[:n]
    _measure(context, found, "torch_add", arrays, lambda: torch.add(arrays.a, arrays.b, out=inside))
    sms = context.chip.sm_count if context.chip else 1
    launches = [(f"block_{block}", "add_one_each", -(-n // block), block) for block in BLOCKS]
    launches += [(f"grid_stride_{k}_per_sm", "add_grid_stride", k * sms, STRIDE_BLOCK) for k in BLOCKS_PER_SM]
    for done, (name, kernel_name, grid, block) in enumerate(launches):
        if context.stopping:
            return
        kernel = kernels[kernel_name]
        context.step(_words(kernel_name, grid, block, n))
        launch = partial(kernel, grid=(grid, 1, 1), block=(block, 1, 1), args=given)
        _measure(context, found, name, arrays, launch)
        _occupancy(context, found, name, kernel, grid, block)
        context.progress(done + 2, total)


def _words(kernel_name: str, grid: int, block: int, n: int) -> str:
    if kernel_name == "add_grid_stride":
        return f"{grid:,} blocks of {block} threads; each thread takes every {grid * block:,}th number."
    return (
        f"{grid:,} blocks of {block} threads, a thread for each number: {grid * block - n} threads too many, and "
        "`if (i < n)` keeps them from writing behind the end."
    )


def _wrong_launch(context: Context, found: Found, kernel: Any, arrays: Arrays) -> None:
    """A block that no GPU can hold: the launch is refused, and the context lives on."""
    context.step(f"A launch that is wrong on purpose: {WRONG_BLOCK} threads in a block; 1024 is the most.")
    given = [arrays.a, arrays.b, arrays.result, arrays.count]
    try:
        kernel(grid=(1, 1, 1), block=(WRONG_BLOCK, 1, 1), args=given)
    except RuntimeError as error:
        context.error(error)
    else:
        found.wrong.append(f"A block of {WRONG_BLOCK} threads was not refused.")
    context.step("The refused launch harmed nothing: the next one works.")
    grid = -(-arrays.count // STRIDE_BLOCK)
    launch = partial(kernel, grid=(grid, 1, 1), block=(STRIDE_BLOCK, 1, 1), args=given)
    _check(context, found, "after the refused launch", arrays, launch)


def _uses(context: Context) -> Uses:
    count = elements_of(context.parameters.elements_millions, context.free_memory()[0])
    memory = count * _BYTES_PER_ELEMENT + _SLACK_BYTES
    return Uses(memory, 5 + 13 * context.parameters.repetitions * memory / 1e12)


def _run(context: Context) -> Verdict:
    count = elements_of(context.parameters.elements_millions, context.free_memory()[0])
    context.cap_memory(context.memory()["reserved_bytes"] + count * _BYTES_PER_ELEMENT + _SLACK_BYTES)
    arrays = _arrays(context, count)
    context.step("Compiling a vector addition in CUDA C with NVRTC.")
    kernels = _compiled(context)
    found = Found()
    _sweep(context, found, kernels, arrays)
    if not context.stopping:
        _wrong_launch(context, found, kernels["add_one_each"], arrays)
    ours = [rate for name, rate in found.rates.items() if name != "torch_add"]
    if ours:
        context.figure("best", max(ours), "GB/s", context.parameters.repetitions)
    return verdict_of(context, found)


WORKLOAD = Workload(
    name="launch",
    purpose="A CUDA kernel of one's own, compiled at run time: which block and grid size suits it.",
    needs="A GPU with CUDA, torch 2.9 or newer with NVRTC; 1.2 GiB of its memory at the default size.",
    why_not_cpu="It launches a CUDA kernel, and a CPU has no blocks and grids to launch.",
    uses=_uses,
    run=_run,
    parameters=(
        integer("elements_millions", 64, 1, 500, "Millions of numbers that are added.", unit="million"),
        integer("repetitions", 20, 3, 500, "How often each launch is timed."),
    ),
)
