"""A rank waits in a loop for a flag that is never set."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(200):
    if rank == 2 and step == 30:
        is_ready = False
        print("hang", flush=True)
        while not is_ready:  # hangs
            pass  # hangs
    dist.all_reduce(gradient)
    time.sleep(0.05)
