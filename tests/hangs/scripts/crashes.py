"""A rank crashes before the others make a group."""

import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(200):
    if step == 30:
        if rank == 1:
            print("hang", flush=True)
            os.abort()
        dist.new_group([0, 1, 2])  # waits
    dist.all_reduce(gradient)
    time.sleep(0.05)
