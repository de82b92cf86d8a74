"""A call returns before the GPU finishes: a wrong and two right timings."""

import time

import torch

if not torch.cuda.is_available():
    raise SystemExit("Needs a GPU: on the CPU, a call returns when its work is finished.")
a = torch.randn(4096, 4096, device="cuda")
a @ a
torch.cuda.synchronize()
start = time.perf_counter()
a @ a
print(f"wrong: {1e3 * (time.perf_counter() - start):.3f} ms, until the call returned")
torch.cuda.synchronize()
print(f"right: {1e3 * (time.perf_counter() - start):.3f} ms, with synchronize()")
begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
begin.record()
a @ a
end.record()
end.synchronize()
print(f"right: {begin.elapsed_time(end):.3f} ms, with events")
