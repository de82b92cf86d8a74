"""The dataset of no rank answers."""

import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """Images, of which one is on a file system that does not answer."""

    def __len__(self):
        return 400

    def __getitem__(self, index):
        if index == 60:
            print("hang", flush=True)
            time.sleep(600)  # hangs
        return torch.ones(10)


dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for batch in DataLoader(Images(), batch_size=2):
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.05)
