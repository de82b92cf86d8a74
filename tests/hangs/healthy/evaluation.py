"""The first rank evaluates for 14 seconds while the others wait."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(80):
    if step == 30 and rank == 0:
        layers = [torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.LayerNorm(256), torch.nn.Dropout()] * 6
        model, end = torch.nn.Sequential(*layers).eval(), time.monotonic() + 14
        with torch.no_grad():
            while time.monotonic() < end:
                model(torch.ones(16, 256)).argmax(1).tolist()
    dist.all_reduce(gradient)
    time.sleep(0.05)
dist.destroy_process_group()
