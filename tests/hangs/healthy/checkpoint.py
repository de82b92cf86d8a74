"""The first rank writes a checkpoint for 14 seconds while the others wait."""

import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(80):
    if step == 30 and rank == 0:
        state, end = {"weights": torch.ones(4_000_000)}, time.monotonic() + 14
        while time.monotonic() < end:
            torch.save(state, f"/dev/shm/checkpoint-{os.getpid()}")
        os.remove(f"/dev/shm/checkpoint-{os.getpid()}")
    dist.all_reduce(gradient)
    time.sleep(0.05)
dist.destroy_process_group()
