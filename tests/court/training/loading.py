"""Cases that wait for data."""

from __future__ import annotations

import time

import torch
from model import FEATURES, mlp, sgd, train
from run import Run
from torch.utils.data import DataLoader, Dataset

BATCH = 16


class Recordings(Dataset[torch.Tensor]):
    """Samples in a storage that needs `read_seconds` for each."""

    def __init__(self, run: Run, read_seconds: float = 0.0, count: int = 4096) -> None:
        self.length = run.choose(512, 16)
        self.dtype = run.choose(torch.bfloat16, torch.float32)
        self.read_seconds = read_seconds
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.read_seconds:
            time.sleep(self.read_seconds)
        return torch.full((self.length, FEATURES), index / self.count, dtype=self.dtype)


class Encoded(Recordings):
    """Samples that a decoder in Python reads."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        raw = bytes(range(256)) * 64
        self.decoded = self.decode(raw) if run.is_cured else None
        self.raw = raw

    def decode(self, raw: bytes) -> torch.Tensor:
        values, last = [], 0.0
        for byte in raw:
            last = 0.9 * last + (byte - 128) / 128
            values.append(last)
        return torch.tensor(values[: self.length * FEATURES], dtype=self.dtype).view(self.length, FEATURES)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.decode(self.raw) if self.decoded is None else self.decoded


def few_workers(run: Run) -> None:
    workers = 12 if run.is_cured else 1
    loader = DataLoader(Recordings(run, read_seconds=0.001), BATCH, num_workers=workers, persistent_workers=True)
    _train(run, loader)


def decode_in_main(run: Run) -> None:
    _train(run, DataLoader(Encoded(run), BATCH))


def restarted_workers(run: Run) -> None:
    recordings = Recordings(run, count=4 * BATCH)
    _train(run, DataLoader(recordings, BATCH, num_workers=4, persistent_workers=run.is_cured))


def _train(run: Run, loader: DataLoader[torch.Tensor]) -> None:
    model = mlp(run)
    optimizer = sgd(model)
    for batch in run.steps(loader):
        train(model, optimizer, batch.to(run.device, non_blocking=True))
