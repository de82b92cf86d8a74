"""A rank asks a question."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(200):
    if rank == 0 and step == 30:
        print("hang", flush=True)
        input()  # hangs
    dist.all_reduce(gradient)
    time.sleep(0.05)
