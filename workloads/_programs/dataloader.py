"""How long a step waits for the DataLoader, by number of workers."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    """Samples that take two milliseconds to prepare."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.002)
        return torch.full((128,), float(index))


if __name__ == "__main__":
    for workers in (0, 2, 4):
        loader = DataLoader(Slow(), batch_size=32, num_workers=workers, pin_memory=torch.cuda.is_available())
        start = time.perf_counter()
        for _batch in loader:
            pass
        print(f"{workers} workers: {256 / (time.perf_counter() - start):,.0f} samples/s")
