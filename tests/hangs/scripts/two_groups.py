"""Two ranks use two groups in different orders."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(200):
    if step == 0:
        data_parallel = dist.new_group([0, 1], group_desc="dp")
        tensor_parallel = dist.new_group([0, 1], group_desc="tp")
    if step == 30 and rank < 2:
        print("hang", flush=True)
        first, second = (data_parallel, tensor_parallel) if rank == 0 else (tensor_parallel, data_parallel)
        dist.all_reduce(gradient, group=first)  # hangs
        dist.all_reduce(gradient, group=second)
    dist.all_reduce(gradient)
    time.sleep(0.05)
