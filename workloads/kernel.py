"""A CUDA program: its five steps, each timed; a race without __syncthreads; sums in shared memory and by shuffle."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Callable

from _kit import HIGHER, LOWER, DeclaredMetric, Uses, Verdict, Workload, integer
from _kit.kernels import compiled
from _kit.timing import device_seconds, hold, host_seconds, median

if TYPE_CHECKING:
    from _kit.context import Context

BLOCK = 256
_REPETITIONS = 20
_FLOAT_BYTES = 4
_SLACK_BYTES = 64 << 20
_HOST_SECONDS_PER_LAUNCH = 40e-6
SUMS = ("sum_atomic", "sum_shared", "sum_shuffle")


def kernel_source() -> str:
    """Returns the CUDA C source of all kernels."""
    return """
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;  // one thread for each element
    if (i < n) c[i] = a[i] + b[i];
}
__device__ void wait_for_clocks(long long clocks) {
    long long start = clock64();
    while (clock64() - start < clocks) {}
}
extern "C" __global__ void reverse_with_sync(const float* in, float* out, int n) {
    __shared__ float buffer[256];
    int first = blockIdx.x * 256, i = threadIdx.x;
    if (i >= 128) wait_for_clocks(20000);           // half of the warps are late
    buffer[i] = first + i < n ? in[first + i] : 0;
    __syncthreads();                                // all writes come before all reads
    if (first + i < n) out[first + i] = buffer[255 - i];
}
extern "C" __global__ void reverse_without_sync(const float* in, float* out, int n) {
    __shared__ float buffer[256];
    int first = blockIdx.x * 256, i = threadIdx.x;
    if (i >= 128) wait_for_clocks(20000);
    ((volatile float*)buffer)[i] = first + i < n ? in[first + i] : 0;
    if (first + i < n) out[first + i] = ((volatile float*)buffer)[255 - i];  // a race: may not be written yet
}
extern "C" __global__ void sum_atomic(const float* in, float* total, int n) {
    int step = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) atomicAdd(total, in[i]);
}
__device__ float own_sum(const float* in, int n) {
    float sum = 0;
    int step = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) sum += in[i];
    return sum;
}
extern "C" __global__ void sum_shared(const float* in, float* total, int n) {
    __shared__ float buffer[256];
    int i = threadIdx.x;
    buffer[i] = own_sum(in, n);
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (i < half) buffer[i] += buffer[i + half];
        __syncthreads();
    }
    if (i == 0) atomicAdd(total, buffer[0]);
}
extern "C" __global__ void sum_shuffle(const float* in, float* total, int n) {
    float sum = own_sum(in, n);
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_down_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x % 32 == 0) atomicAdd(total, sum);  // one for each warp
}
"""


def five_steps(context: Context, kernel: Any, count: int) -> tuple[dict[str, float], bool]:
    """Runs a CUDA program, and returns the seconds of each step, and whether the sums are right."""
    torch, seconds = context.torch, {}
    host = torch.arange(count, dtype=torch.float32).remainder(1000).pin_memory()
    result = torch.empty_like(host, pin_memory=True)
    arrays: list[Any] = []

    def timed(name: str, work: Callable[[], object]) -> None:
        seconds[name] = host_seconds(context, work)[1]

    torch.cuda.empty_cache()  # so that memory comes from the driver, as with cudaMalloc
    timed("1 allocate", lambda: arrays.extend(torch.empty(count, device=context.device) for _ in range(3)))
    timed("2 copy to the GPU", lambda: [array.copy_(host, non_blocking=True) for array in arrays[:2]])
    grid = -(-count // BLOCK)
    timed("3 launch", lambda: kernel(grid=(grid, 1, 1), block=(BLOCK, 1, 1), args=[*arrays, count]))
    timed("4 copy back", lambda: result.copy_(arrays[2], non_blocking=True))
    timed("5 free", partial(_free, torch, arrays))
    return seconds, bool(torch.equal(result, 2 * host))


def _free(torch: Any, arrays: list[Any]) -> None:
    """Returns memory to the driver, as cudaFree does."""
    arrays.clear()
    torch.cuda.empty_cache()


def _race(context: Context, kernels: dict[str, Any], count: int) -> tuple[int, int]:
    """Reverses blocks in shared memory with and without __syncthreads; returns the wrong elements of both."""
    torch, wrong = context.torch, []
    grid = 4 * (context.chip.sm_count if context.chip else 1)
    count = min(count, grid * BLOCK) // BLOCK * BLOCK
    values = torch.arange(1, count + 1, dtype=torch.float32, device=context.device)
    expected = values.view(-1, BLOCK).flip(1).flatten()
    for name in ("reverse_with_sync", "reverse_without_sync"):
        # Other values than the launch before, which shared memory may still hold, and which a race would read.
        values, expected, out = -values, -expected, torch.zeros_like(values)
        kernels[name](grid=(count // BLOCK, 1, 1), block=(BLOCK, 1, 1), args=[values, out, count])
        context.synchronize()
        wrong.append(int((out != expected).sum()))
        context.result("wrong_elements", wrong[-1], repetitions=count, case=name)
    context.checked += 1
    return wrong[0], wrong[1]


def _sums(context: Context, kernels: dict[str, Any], count: int) -> list[str]:
    """Measures three ways to add up an array, and torch.sum; returns those that are wrong."""
    torch, wrong = context.torch, []
    values, total = torch.ones(count, device=context.device), torch.zeros(1, device=context.device)
    grid = 8 * (context.chip.sm_count if context.chip else 1)
    ways: dict[str, Callable[[], object]] = {
        name: partial(kernels[name], grid=(grid, 1, 1), block=(BLOCK, 1, 1), args=[values, total, count])
        for name in SUMS
    }
    ways["torch.sum"] = lambda: torch.sum(values, 0, keepdim=True, out=total)
    for name, way in ways.items():
        total.zero_()
        way()
        if abs(float(total) / count - 1) > 1e-3:  # atomic additions of float32 round in any order
            wrong.append(f"{name} gave {float(total):.0f} for {count}")
        context.checked += 1
        hold(context, _REPETITIONS * _HOST_SECONDS_PER_LAUNCH)
        seconds = median(device_seconds(context, way, _REPETITIONS))
        context.result("sum", count * _FLOAT_BYTES / seconds / 1e9, repetitions=_REPETITIONS, case=name)
    return wrong


def _count(context: Context) -> int:
    """Returns the number of elements: at most 2^24, up to which float32 counts exactly."""
    return int(min(context.parameters.elements_millions * 1_000_000, 1 << 24))


def _uses(context: Context) -> Uses:
    size = 3 * _FLOAT_BYTES * _count(context)
    return Uses(size + _SLACK_BYTES, 10, 2 * size)


def _run(context: Context) -> Verdict:
    count = _count(context)
    context.cap_memory(_uses(context).memory_bytes)
    context.step(f"Compiling {len(SUMS) + 3} kernels with NVRTC. `v` shows their source.")
    names = ("add", "reverse_with_sync", "reverse_without_sync", *SUMS)
    kernels = compiled(context, kernel_source(), names)
    five_steps(context, kernels["add"], BLOCK)  # loads the code
    context.step(f"A vector addition of {count:,} elements: {-(-count // BLOCK):,} blocks of {BLOCK} threads.")
    steps, is_right = five_steps(context, kernels["add"], count)
    context.checked += 1
    for case, seconds in steps.items():
        context.result("step", seconds * 1e3, repetitions=1, case=case)
    context.progress(1, 3)
    context.step("Each block reverses 256 elements in shared memory: with __syncthreads(), and without, a race.")
    wrong_with, wrong_without = _race(context, kernels, count)
    context.progress(2, 3)
    context.step("An array is added up with an atomic addition for each element, shared memory, and shuffles.")
    wrong = _sums(context, kernels, count)
    context.progress(3, 3)
    wrong += [] if is_right else ["the vector addition is wrong"]
    wrong += [f"{wrong_with} elements are wrong with __syncthreads()"] if wrong_with else []
    if wrong:
        return context.fail(f"{'; '.join(wrong)}.")
    longest = max(steps, key=lambda name: steps[name])
    text = f"Of the five steps, {longest[2:]} takes longest: {steps[longest] * 1e3:.3g} ms, the launch "
    text += f"{steps['3 launch'] * 1e3:.3g} ms. Without __syncthreads(), {wrong_without:,} elements were wrong."
    return context.ok(text) if wrong_without else context.warn(f"{text} The race did not show this time.")


WORKLOAD = Workload(
    name="kernel",
    purpose="A CUDA program in five timed steps; a race without __syncthreads; sums in shared memory and by shuffle.",
    needs="A GPU with CUDA, torch 2.9 or later with NVRTC.",
    why_not_cpu="kernel compiles and launches CUDA kernels, which need a GPU.",
    uses=_uses,
    run=_run,
    main_metric="sum",
    code=(kernel_source, five_steps),
    metrics=(
        DeclaredMetric("step", "ms", LOWER),
        DeclaredMetric("sum", "GB/s", HIGHER),
        DeclaredMetric("wrong_elements", "elements", LOWER, format="count"),
    ),
    parameters=(integer("elements_millions", 16, 1, 16, "Millions of elements.", unit="million"),),
)
