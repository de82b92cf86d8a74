"""Speed of a matrix product on the GPU."""

import time

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
size, dtype = (8192, torch.bfloat16) if device == "cuda" else (512, torch.float32)
a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
for _ in range(3):  # the first products load code and choose an algorithm
    a @ b
if device == "cuda":
    torch.cuda.synchronize()
start = time.perf_counter()
for _ in range(20):
    c = a @ b
if device == "cuda":
    torch.cuda.synchronize()  # a call returns before the GPU has finished
seconds = (time.perf_counter() - start) / 20
print(f"{2 * size**3 / seconds / 1e12:.3g} TFLOP/s")
