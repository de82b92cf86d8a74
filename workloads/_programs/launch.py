"""A CUDA kernel that is compiled at run time, by block size."""

import os

import torch

SOURCE = """
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;  // one thread for each element
    if (i < n) c[i] = a[i] + b[i];
}
"""
if not torch.cuda.is_available():
    raise SystemExit("Needs a GPU.")
os.environ.setdefault("CUDA_HOME", "/nonexistent")  # torch asks for it, and the kernel includes no header
add = torch.cuda._compile_kernel(SOURCE, "add")  # with NVRTC; torch 2.9 or later
count = 64 << 20
a, b, c = (torch.ones(count, device="cuda") for _ in range(3))
for threads in (32, 64, 128, 256, 512, 1024):
    grid = (-(-count // threads), 1, 1)
    add(grid=grid, block=(threads, 1, 1), args=[a, b, c, count])
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(20):
        add(grid=grid, block=(threads, 1, 1), args=[a, b, c, count])
    end.record()
    end.synchronize()
    rate = 20 * 3 * c.nbytes / begin.elapsed_time(end) / 1e6
    print(f"{threads} threads per block: {rate:,.0f} GB/s, {'right' if c.eq(2).all() else 'WRONG'}")
