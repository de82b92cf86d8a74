"""Out of memory, caught: the memory returns when the last reference to a tensor is gone."""

import gc

import torch

if not torch.cuda.is_available():
    raise SystemExit("Needs a GPU.")
torch.cuda.set_per_process_memory_fraction(0.1)  # leave the rest to others
kept = []
try:
    while True:
        kept.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError as error:
    print(str(error).splitlines()[0])
print(f"allocated {torch.cuda.memory_allocated() >> 20} MiB")
kept.clear()
gc.collect()
print(f"after del: allocated {torch.cuda.memory_allocated() >> 20}, reserved {torch.cuda.memory_reserved() >> 20} MiB")
torch.cuda.empty_cache()
print(f"after empty_cache: reserved {torch.cuda.memory_reserved() >> 20} MiB")
