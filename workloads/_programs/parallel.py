"""One model under DistributedDataParallel on all GPUs, or in two processes of the CPU."""

import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

COUNT = torch.cuda.device_count()
WORLD = COUNT if COUNT > 1 else 2


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor, steps: int) -> None:
    """Train, and wait for the device."""
    for _ in range(steps):
        loss = (model(batch) - batch).square().mean()
        loss.backward()  # sums the gradients of all ranks while it runs
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    loss.item()


def main(rank: int) -> None:
    """One process for each GPU."""
    on_gpu = COUNT > 1
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo", rank=rank, world_size=WORLD)
    width = 4096 if on_gpu else 256
    module = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).to(device)
    model = DistributedDataParallel(module, device_ids=[rank] if on_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(64, width, device=device)  # another one in each process
    train(model, optimizer, batch, 5)  # the warm-up
    start = time.perf_counter()
    train(model, optimizer, batch, 20)
    if rank == 0:
        print(f"{WORLD} ranks: {20 * 64 * WORLD / (time.perf_counter() - start):,.0f} samples/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29512")
    mp.spawn(main, nprocs=WORLD)
