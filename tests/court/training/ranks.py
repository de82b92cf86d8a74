"""Cases of two ranks: two GPUs with NCCL, or two processes on the CPU with gloo."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from contention import busy_gpu
from loading import BATCH, Recordings
from model import FEATURES, frames, mlp, sgd, train
from run import Run
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


def join(run: Run) -> None:
    """Become a rank of the job that torchrun has started."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(run.choose("nccl", "gloo"))


def replicated(run: Run, model: nn.Module, **options: Any) -> nn.Module:
    devices = run.choose([run.device.index or 0], None)
    return DistributedDataParallel(model, device_ids=devices, **options)


def more_data(run: Run) -> None:
    join(run)
    model = replicated(run, mlp(run))
    optimizer = sgd(model)
    factor = 4 if run.rank == 1 and not run.is_cured else 1
    batch = frames(run, batch=factor * run.choose(16, 96))
    for _ in run.steps():
        train(model, optimizer, batch)


def slower_rank(run: Run) -> None:
    join(run)
    model, batch = replicated(run, mlp(run)), frames(run, batch=run.choose(16, 96))
    optimizer = sgd(model)
    size = run.choose(4096, 384)
    other = torch.randn(size, size, device=run.device, dtype=batch.dtype)
    for _ in run.steps():
        if run.rank == 1 and not run.is_cured:  # stands for lower clocks
            for _ in range(run.choose(40, 16)):
                torch.mm(other, other)
        train(model, optimizer, batch)


def ignore_termination(_: int) -> None:
    """Let a worker end with its rank: torchrun sends the signal that ends a run to the workers too."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def slower_loader(run: Run) -> None:
    join(run)
    seconds = 0.004 if run.rank == 1 and not run.is_cured else 0.0
    loader = DataLoader(
        Recordings(run, read_seconds=seconds),
        BATCH,
        num_workers=1,
        persistent_workers=True,
        worker_init_fn=ignore_termination,
    )
    model = replicated(run, mlp(run))
    optimizer = sgd(model)
    for batch in run.steps(loader):
        train(model, optimizer, batch.to(run.device, non_blocking=True))


def shared_rank(run: Run) -> None:
    join(run)
    with busy_gpu(run.device) if run.rank == 1 and not run.is_cured else nullcontext():
        model, batch = replicated(run, mlp(run)), frames(run)
        optimizer = sgd(model)
        for _ in run.steps():
            train(model, optimizer, batch)


def tiny_buckets(run: Run) -> None:
    join(run)
    bucket_megabytes = 25 if run.is_cured else 0.001
    model = replicated(run, mlp(run, run.choose(256, 32), 60), bucket_cap_mb=bucket_megabytes)
    batch = frames(run, batch=4)
    optimizer = sgd(model)
    for _ in run.steps():
        train(model, optimizer, batch)


class TwoHeads(nn.Module):
    """A network whose second head belongs to another task."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.body = mlp(run, run.choose(256, 16), 60)
        self.other = mlp(run, run.choose(256, 16), 200)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.body(batch)
        return result


def unused_parameters(run: Run) -> None:
    join(run)
    network = TwoHeads(run)
    if run.is_cured:
        network.other.requires_grad_(requires_grad=False)
    model = replicated(run, network, find_unused_parameters=not run.is_cured)
    batch = frames(run, batch=4)
    optimizer = sgd(network.body)
    for _ in run.steps():
        train(model, optimizer, batch)


def unbalanced_fsdp(run: Run) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    join(run)
    width = 8192
    layers = [nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(8)]
    network = nn.Sequential(nn.Linear(FEATURES, width), *layers, nn.Linear(width, FEATURES))
    policy = ModuleWrapPolicy({nn.Linear}) if run.is_cured else None
    model = FullyShardedDataParallel(
        network.to(run.device, torch.bfloat16), auto_wrap_policy=policy, device_id=run.device, use_orig_params=True
    )
    optimizer = sgd(model)
    batch = frames(run, batch=6)
    for _ in run.steps():
        train(model, optimizer, batch)
