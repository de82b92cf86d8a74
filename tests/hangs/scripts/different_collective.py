"""A rank calls another collective."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(200):
    if rank == 1 and step == 30:
        print("hang", flush=True)
        dist.barrier()  # hangs
        continue
    dist.all_reduce(gradient)
    time.sleep(0.05)
