"""Bandwidth by working set: what fits into the L2 cache is faster than device memory."""

import torch

if not torch.cuda.is_available():
    raise SystemExit("Needs a GPU.")
print(f"L2 cache: {torch.cuda.get_device_properties(0).L2_cache_size >> 20} MiB")
for mebibytes in (8, 16, 32, 64, 128, 256, 512, 1024):
    values = torch.zeros((mebibytes << 20) // 4, device="cuda")
    values.add_(1)  # loads the kernel, which a capture cannot
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()  # so that launches do not take longer than the kernels
    with torch.cuda.graph(graph):
        for _ in range(50):
            values.add_(1)
    graph.replay()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    rate = 50 * 2 * values.nbytes / begin.elapsed_time(end) / 1e6
    print(f"{mebibytes} MiB: {rate:,.0f} GB/s, read and written")
