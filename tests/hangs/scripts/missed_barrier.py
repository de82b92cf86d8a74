"""The first rank does not come to a barrier."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(200):
    if step == 30:
        print("hang", flush=True)
        if rank != 0:
            dist.barrier()
    dist.all_reduce(gradient)  # hangs
    time.sleep(0.05)
