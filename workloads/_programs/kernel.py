"""A CUDA kernel in five steps, and a race: blocks reversed in shared memory with and without __syncthreads()."""

import os

import torch

SOURCE = """
extern "C" __global__ void reverse(const float* in, float* out, int waits) {
    __shared__ float buffer[256];
    int first = blockIdx.x * 256, i = threadIdx.x;
    for (long long start = clock64(); i >= 128 && clock64() - start < 20000;) {}  // half of the warps are late
    ((volatile float*)buffer)[i] = in[first + i];
    if (waits) __syncthreads();                                // all writes come before all reads
    out[first + i] = ((volatile float*)buffer)[255 - i];
}
"""
if not torch.cuda.is_available():
    raise SystemExit("Needs a GPU.")
os.environ.setdefault("CUDA_HOME", "/nonexistent")  # torch asks for it, and the kernel includes no header
reverse = torch.cuda._compile_kernel(SOURCE, "reverse")  # with NVRTC; torch 2.9 or later
host = torch.arange(1, 256 * 500 + 1, dtype=torch.float32).pin_memory()
values, out = (torch.empty_like(host, device="cuda") for _ in range(2))  # 1. allocate
values.copy_(host, non_blocking=True)  # 2. copy to the GPU
expected = host.view(-1, 256).flip(1).flatten()
for waits in (1, 0):
    values.neg_()  # other values than the launch before has left in shared memory
    expected.neg_()
    reverse(grid=(500, 1, 1), block=(256, 1, 1), args=[values, out, waits])  # 3. launch
    result = out.cpu()  # 4. copy back, which waits for the kernel
    name = "with" if waits else "without"
    print(f"{name} __syncthreads(): {int((result != expected).sum())} of {len(host)} elements are wrong")
del values, out  # 5. free: the cache of PyTorch keeps the memory,
torch.cuda.empty_cache()  # until it returns the memory to the driver
