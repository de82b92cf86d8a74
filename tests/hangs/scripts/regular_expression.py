"""A rank matches a regular expression that takes forever, with the GIL."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(200):
    if rank == 2 and step == 100:
        import re

        print("hang", flush=True)
        re.match(r"(a+)+$", "a" * 60 + "b")  # hangs
    dist.all_reduce(gradient)
    time.sleep(0.05)
