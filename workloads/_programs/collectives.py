"""An all-reduce between all GPUs, or between two processes of the CPU: algorithm and bus bandwidth."""

import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

COUNT = torch.cuda.device_count()
WORLD = COUNT if COUNT > 1 else 2


def main(rank: int) -> None:
    """One process for each GPU."""
    on_gpu = COUNT > 1
    if on_gpu:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if on_gpu else "gloo", rank=rank, world_size=WORLD)
    tensor = torch.ones((64 << 20) if on_gpu else (1 << 20), device="cuda" if on_gpu else "cpu")
    for repetition in range(15):
        if repetition == 5:  # after the warm-up
            if on_gpu:
                torch.cuda.synchronize()
            start = time.perf_counter()
        tensor.fill_(1.0)
        dist.all_reduce(tensor)
    assert tensor.eq(WORLD).all()  # waits for the GPU
    seconds = (time.perf_counter() - start) / 10
    if rank == 0:
        rate = tensor.nbytes / seconds / 1e9
        print(f"{WORLD} ranks: {rate:.3g} GB/s, bus bandwidth {2 * (WORLD - 1) / WORLD * rate:.3g} GB/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29511")
    mp.spawn(main, nprocs=WORLD)
