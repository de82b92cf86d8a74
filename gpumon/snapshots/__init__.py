"""PyTorch's memory snapshots: reads the files of `torch.cuda.memory._dump_snapshot` and analyzes them."""
