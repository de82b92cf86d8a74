"""Training throughput by batch size."""

import time

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
width = 2048 if device == "cuda" else 256
model = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train(batch: torch.Tensor, steps: int) -> None:
    """Train, and wait for the device."""
    for _ in range(steps):
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    loss.item()


for size in (1, 4, 16, 64, 256):
    batch = torch.randn(size, width, device=device)
    train(batch, 3)  # the warm-up
    start = time.perf_counter()
    train(batch, 10)
    print(f"batch {size}: {10 * size / (time.perf_counter() - start):,.0f} samples/s")
