"""A rank waits for a program that does not end."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(200):
    if rank == 1 and step == 30:
        import subprocess

        print("hang", flush=True)
        subprocess.run(["sleep", "600"], check=True)  # hangs
    dist.all_reduce(gradient)
    time.sleep(0.05)
