"""An allocation that fails although enough memory is free: growing batches, each of which leaves a small result."""

import sys

import torch

if not torch.cuda.is_available():
    raise SystemExit("Needs a GPU.")
MIB, LIMIT = 1 << 20, 2 << 30
torch.cuda.set_per_process_memory_fraction(LIMIT / torch.cuda.get_device_properties(0).total_memory)
kept = []
try:
    for size in range(128, 384, 8):
        batch = torch.empty(size * MIB, dtype=torch.uint8, device="cuda")
        del batch  # the next batch, which is a little smaller, reuses this memory, and the result follows it
        batch = torch.empty((size - 4) * MIB, dtype=torch.uint8, device="cuda")
        kept.append(torch.empty(3 * MIB, dtype=torch.uint8, device="cuda"))
        del batch
except torch.OutOfMemoryError:
    unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    print(f"{size} MiB cannot be allocated, although {unused // MIB} MiB are reserved and not in use.")
    print(f"With PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python {sys.argv[0]}, they can.")
else:
    print(f"All batches up to {size} MiB were allocated.")
