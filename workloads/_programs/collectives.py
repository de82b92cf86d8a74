"""An all-reduce between ranks: torchrun --nproc-per-node=2 collectives.py."""

import os
import time

import torch
import torch.distributed as dist

rank = int(os.environ.get("LOCAL_RANK", "0"))
on_gpu = torch.cuda.device_count() > rank
device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
for name, default in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0"), ("RANK", "0"), ("WORLD_SIZE", "1")):
    os.environ.setdefault(name, default)
dist.init_process_group("nccl" if on_gpu else "gloo")
tensor = torch.ones(16 << 20, device=device)
dist.all_reduce(tensor)
expected = float(dist.get_world_size())
start = time.perf_counter()
for _ in range(5):
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG if on_gpu else dist.ReduceOp.MAX)
result = tensor[0].item()  # waits for the GPU
print(f"rank {dist.get_rank()}: {(time.perf_counter() - start) * 200:.2f} ms per all-reduce, {result == expected}")
dist.destroy_process_group()
