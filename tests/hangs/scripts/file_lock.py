"""A rank waits for the lock on a file that another has."""

import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient = torch.ones(1000)
for step in range(200):
    if step == 30:
        import fcntl
        import tempfile

        file = open(os.path.join(tempfile.gettempdir(), f"lock-{os.environ['MASTER_PORT']}"), "w")
        time.sleep(0.5 * rank)
        print("hang", flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)  # hangs
    dist.all_reduce(gradient)
    time.sleep(0.05)
