"""Latency of a forward pass: with gradients, in inference mode, in half precision, and in a batch."""

import time

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
width = 2048 if device == "cuda" else 256
model = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)).to(device).eval()


def measure(name: str, dtype: torch.dtype, size: int, is_inference: bool) -> None:
    """Print the median and the 99th percentile of a call, and its throughput."""
    model.to(dtype)
    batch = torch.randn(size, width, device=device, dtype=dtype)
    seconds = []
    with torch.inference_mode(is_inference):
        for _ in range(120):
            start = time.perf_counter()
            model(batch)
            if device == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
    seconds = sorted(seconds[20:])  # without the warm-up
    median = seconds[50]
    print(f"{name}: p50 {1e6 * median:.0f} us, p99 {1e6 * seconds[-2]:.0f} us, {size / median:,.0f} samples/s")


measure("with gradients", torch.float32, 1, is_inference=False)
measure("inference_mode", torch.float32, 1, is_inference=True)
measure("bf16", torch.bfloat16, 1, is_inference=True)
measure("bf16, batch 32", torch.bfloat16, 32, is_inference=True)
