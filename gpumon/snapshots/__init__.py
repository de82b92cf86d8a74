"""PyTorch's memory snapshots: reading what `torch.cuda.memory._dump_snapshot` wrote, and what can be asked of it."""
