"""Steps take between 0.01 and 2 seconds."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(60):
    time.sleep(2.0 if (step + rank) % 9 == 0 else 0.01)
    dist.all_reduce(gradient)
    time.sleep(0.05)
dist.destroy_process_group()
