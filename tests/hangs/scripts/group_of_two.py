"""A rank has not entered a collective of a group with a name."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(200):
    if step == 0:
        pairs = [dist.new_group([0, 1], group_desc="pair0"), dist.new_group([2, 3], group_desc="pair1")]
    if step == 30 and rank == 3:
        print("hang", flush=True)
        time.sleep(600)  # hangs
    dist.all_reduce(gradient, group=pairs[rank // 2])
    dist.all_reduce(gradient)
    time.sleep(0.05)
