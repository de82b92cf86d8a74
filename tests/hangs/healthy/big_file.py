"""The first rank writes a large file for 14 seconds while the others wait."""

import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(80):
    if step == 30 and rank == 0:
        data, end = bytes(1 << 20), time.monotonic() + 14
        with open(os.devnull, "wb") as file:
            while time.monotonic() < end:
                file.write(data)
                time.sleep(0.01)
    dist.all_reduce(gradient)
    time.sleep(0.05)
dist.destroy_process_group()
