"""Loading data: samples with a cost to decode, and a training step that checks what arrives."""

from __future__ import annotations

import os
import zlib
from random import Random
from typing import TYPE_CHECKING, Any

from _kit.timing import batch_seconds, median

if TYPE_CHECKING:
    from _kit.context import Context

_IMAGES = 64
"""Different compressed images; sample N is image N modulo this."""
_SAMPLES = 1 << 30
"""Length of the dataset: no measurement gets to its end."""
_WIDTHS = {"cuda": 2048, "cpu": 256}
_MAX_ROUNDS = 1_000_000
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where torch puts the batches of workers


class CompressedImages:
    """A dataset whose samples cost CPU time to decode, as images do.

    Workers are forked, so that they share the compressed images; they use no GPU.

    Args:
        size: Bytes of a decoded image.
        rounds: How often an image is decompressed for one sample: the cost of decoding.

    Attributes:
        sums: The sum of the bytes of each image, to check what arrives.
    """

    def __init__(self, size: int, rounds: int) -> None:
        images = [bytes(Random(image).choices(range(16), k=size)) for image in range(_IMAGES)]  # noqa: S311
        self.sums = [sum(image) for image in images]
        self._files = [zlib.compress(image) for image in images]
        self._rounds = rounds

    def __len__(self) -> int:
        """Returns the number of samples."""
        return _SAMPLES

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Decodes a sample; returns its bytes as a tensor, and its index."""
        import torch

        pixels = b""
        for _ in range(self._rounds):
            pixels = zlib.decompress(self._files[index % _IMAGES])
        return torch.frombuffer(bytearray(pixels), dtype=torch.uint8), index


class TrainingStep:
    """A step that takes a given time on the device, and checks the samples that it gets.

    Args:
        context: The run.
        dataset: The source of the samples.
    """

    def __init__(self, context: Context, dataset: CompressedImages) -> None:
        torch = context.torch
        if not context.on_gpu:
            torch.set_num_threads(1)  # leaves the other CPUs to the workers
        self._context = context
        width = _WIDTHS[context.device.type]
        self._left, self._right, self._product = (torch.ones(width, width, device=context.device) for _ in range(3))
        self._sums = torch.tensor(dataset.sums, dtype=torch.int64, device=context.device)
        self._rounds = 1
        self._next = self._wrong = 0
        self._work()
        context.synchronize()
        one = min(batch_seconds(context, self._work, 5) / 5 for _ in range(5))
        self._rounds = min(_MAX_ROUNDS, max(1, round(context.parameters.step_ms / 1e3 / max(one, 1e-9))))
        self.seconds = median([batch_seconds(context, self._work, 1) for _ in range(5)])

    def __call__(self, batch: Any) -> None:
        """Uses a batch and waits for the device."""
        torch = self._context.torch
        pixels, labels = (part.to(self._context.device, non_blocking=True) for part in batch)
        self._work()
        expected = torch.arange(self._next, self._next + len(labels), device=self._context.device)
        is_wrong = (labels != expected) | (pixels.sum(dim=1, dtype=torch.int64) != self._sums[labels % _IMAGES])
        self._next += len(labels)
        self._wrong += int(is_wrong.sum())  # waits for the device

    def finish(self) -> tuple[int, int]:
        """Returns how many samples were used and how many of them were wrong, and starts again at the first sample."""
        used, wrong = self._next, self._wrong
        self._next = self._wrong = 0
        return used, wrong

    def _work(self) -> None:
        for _ in range(self._rounds):
            self._context.torch.mm(self._left, self._right, out=self._product)


def shared_memory_problem(required: int, folder: str = _SHARED_MEMORY) -> str:
    """Returns a sentence if shared memory is too small for the batches of the workers, otherwise an empty text."""
    try:
        state = os.statvfs(folder)
    except OSError:
        return ""
    free = state.f_bavail * state.f_frsize
    if free >= required:
        return ""
    return (
        f"Batches pass through {folder}, where {free >> 20} MiB are free; up to {required >> 20} MiB are needed. "
        "Start the container with --shm-size=1g or --ipc=host, or choose a smaller max_workers or batch_size."
    )
