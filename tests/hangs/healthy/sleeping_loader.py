"""Every batch takes 3 seconds to come."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(10):
    time.sleep(3.0)
    dist.all_reduce(gradient)
    time.sleep(0.05)
dist.destroy_process_group()
