"""Every rank broadcasts from itself, and waits for the others."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(200):
    if step == 30:
        print("hang", flush=True)
        dist.broadcast(gradient, src=2 if rank == 1 else 0)  # hangs
    dist.all_reduce(gradient)
    time.sleep(0.05)
