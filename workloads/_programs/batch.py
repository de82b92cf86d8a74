"""Throughput by batch size: larger batches use the device better, up to a knee."""

import time

import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
width = 4096 if device == "cuda" else 256
model = torch.nn.Linear(width, width, device=device)
for size in (1, 4, 16, 64, 256):
    batch = torch.randn(size, width, device=device)
    for _ in range(3):
        model(batch).sum().backward()
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(10):
        model(batch).sum().backward()
    if device == "cuda":
        torch.cuda.synchronize()
    print(f"batch {size}: {10 * size / (time.perf_counter() - start):,.0f} samples/s")
