"""Bandwidth of a copy within the memory of the device."""

import time

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
source = torch.ones((1 << 30) if device == "cuda" else (16 << 20), dtype=torch.uint8, device=device)
target = torch.empty_like(source)
target.copy_(source)
if device == "cuda":
    torch.cuda.synchronize()
start = time.perf_counter()
for _ in range(10):
    target.copy_(source)
if device == "cuda":
    torch.cuda.synchronize()
print(f"{10 * 2 * source.nbytes / (time.perf_counter() - start) / 1e9:.0f} GB/s, read and written")
