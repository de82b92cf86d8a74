"""Every rank compiles its model in the first step."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(60):
    if step == 3:
        import torch._dynamo

        end = time.monotonic() + 13
        while time.monotonic() < end:
            torch._dynamo.reset()
            layers = [torch.nn.Linear(8, 8), torch.nn.ReLU()] * 10
            torch.compile(torch.nn.Sequential(*layers), backend="aot_eager")(torch.ones(2, 8)).sum().backward()
    dist.all_reduce(gradient)
    time.sleep(0.05)
dist.destroy_process_group()
