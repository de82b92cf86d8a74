"""Copies from the host to the GPU: pageable and pinned memory."""

import time

import torch

if not torch.cuda.is_available():
    raise SystemExit("Needs a GPU.")
pageable = torch.empty(256 << 20, dtype=torch.uint8)
for name, host in (("pageable", pageable), ("pinned", pageable.pin_memory())):
    host.to("cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(10):
        host.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    print(f"{name}: {10 * host.nbytes / (time.perf_counter() - start) / 1e9:.1f} GB/s")
