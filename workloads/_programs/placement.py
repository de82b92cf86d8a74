"""Find the lines of a training loop at which the host waits for the GPU."""

import warnings

import torch

if not torch.cuda.is_available():
    raise SystemExit("Needs a GPU.")
torch.cuda.set_sync_debug_mode("warn")
warnings.simplefilter("always")
x = torch.randn(1000, device="cuda")
y = x.relu().sum()  # queued: no wait
print(y.item())  # waits
x[x > 0] = 1.0  # queued
print(len(x[x > 0]))  # waits: the size of the result is needed
torch.cuda.set_sync_debug_mode("default")
