"""A step takes 5 seconds, and one takes 11."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(8):
    time.sleep(11.0 if step == 5 else 5.0)
    dist.all_reduce(gradient)
    time.sleep(0.05)
dist.destroy_process_group()
