"""A copy that runs while the GPU computes: pinned memory and a second stream."""

import time

import torch

if not torch.cuda.is_available():
    raise SystemExit("Needs a GPU.")
host = torch.empty(256 << 20, dtype=torch.uint8).pin_memory()
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
copies = torch.cuda.Stream()
for name, stream in (("one stream", torch.cuda.current_stream()), ("two streams", copies)):
    for _ in range(2):  # the first round warms up
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(10):
            with torch.cuda.stream(stream):
                batch = host.to("cuda", non_blocking=True)
            a @ a
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    print(f"{name}: {1e2 * seconds:.2f} ms for a copy and a product")
