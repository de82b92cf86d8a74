"""A rank pauses for 7 seconds."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(100):
    if step == 40 and rank == 1:
        time.sleep(7.0)
    dist.all_reduce(gradient)
    time.sleep(0.05)
dist.destroy_process_group()
