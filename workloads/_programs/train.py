"""A training step with automatic mixed precision, timed."""

import time

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
width = 2048 if device == "cuda" else 128
model = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), fused=device == "cuda")
batch = torch.randn(64, width, device=device)
for step in range(23):
    if step == 3:  # after the warm-up
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = (model(batch) - batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(f"loss {loss.item():.3f}, {20 * 64 / (time.perf_counter() - start):,.0f} samples/s")
