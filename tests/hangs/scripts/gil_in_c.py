"""A rank calls a C function that does not release the GIL."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(200):
    if rank == 1 and step == 100:
        import ctypes

        print("hang", flush=True)
        ctypes.PyDLL(None).sleep(600)  # hangs
    dist.all_reduce(gradient)
    time.sleep(0.05)
