"""A rank receives from one that does not send."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(200):
    if rank == 1 and step == 30:
        print("hang", flush=True)
        dist.recv(gradient, 0)  # hangs
    dist.all_reduce(gradient)
    time.sleep(0.05)
