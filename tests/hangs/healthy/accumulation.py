"""The gradients of many batches are accumulated between two collectives."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(6):
    layer = torch.nn.Linear(256, 256)
    end = time.monotonic() + 6
    while time.monotonic() < end:
        layer(torch.ones(64, 256)).sum().backward()
    dist.all_reduce(gradient)
    time.sleep(0.05)
dist.destroy_process_group()
