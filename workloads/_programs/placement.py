"""A training loop that waits for the GPU in every step, and one that does not; PyTorch names the waits."""

import time

import torch
from torch import nn

if not torch.cuda.is_available():
    raise SystemExit("Needs a GPU: on the CPU, nothing waits.")
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(256, 64, device="cuda")


def train(steps: int, waits: bool) -> None:
    """Trains, and collects the losses on the host or on the GPU."""
    losses = []
    for _ in range(steps):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item() if waits else loss.detach())  # .item() waits for the GPU
    torch.stack(losses).tolist() if not waits else losses


for waits in (True, False):
    train(500, waits=waits)  # the warm-up
for waits in (True, False):
    start = time.perf_counter()
    train(500, waits=waits)
    print(f"{'with' if waits else 'without'} .item(): {500 / (time.perf_counter() - start):,.0f} steps/s")
torch.cuda.set_sync_debug_mode("warn")  # a warning with the line of each wait
train(1, waits=True)
