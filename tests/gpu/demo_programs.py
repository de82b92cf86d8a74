"""Programs of which the bundled recording is made: small, real training runs and servers for one GPU or two.

The file is copied to the name of the program that it shall be: ``python pretrain.py --config llama.yaml --seconds 60``.
What a program does follows from its name. Each ends by itself, holds at most 60 GiB, writes no file, and changes no
setting of the host or the GPU. On the CPU (``--device cpu``) it does the same with small sizes, so that it can be
tried without a GPU.
"""

import argparse
import io
import itertools
import math
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

GIBIBYTE = 1 << 30
MAX_BYTES = 60 * GIBIBYTE
HELD_BYTES = 52 * GIBIBYTE
START = time.monotonic()


class Run:
    """The options and the device of a program."""

    def __init__(self) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--config", default="")
        parser.add_argument("--seconds", type=float, default=60.0)
        parser.add_argument("--device", default="cuda")
        options = parser.parse_args()
        self.program = Path(sys.argv[0]).stem
        self.seconds: float = options.seconds
        self.rank, self.ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self.is_cpu = options.device == "cpu"
        self.device = torch.device("cpu" if self.is_cpu else f"cuda:{os.environ.get('LOCAL_RANK', '0')}")
        if not self.is_cpu:
            torch.cuda.set_device(self.device)
            total = torch.cuda.get_device_properties(self.device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, MAX_BYTES / total), self.device)
        if self.ranks > 1:
            torch.distributed.init_process_group("gloo" if self.is_cpu else "nccl")

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the program."""
        return time.monotonic() - START

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.elapsed >= self.seconds

    def size(self, on_gpu: int, on_cpu: int) -> int:
        """A size, which is small on the CPU."""
        return on_cpu if self.is_cpu else on_gpu

    def synchronize(self) -> None:
        """Wait for the kernels."""
        if not self.is_cpu:
            torch.cuda.synchronize(self.device)

    def autocast(self) -> torch.autocast:
        """Matrix products in bf16."""
        return torch.autocast(self.device.type, torch.bfloat16)

    def parallel(self, model: nn.Module) -> nn.Module:
        """The model, whose gradients all ranks average."""
        if self.ranks == 1:
            return model
        return DistributedDataParallel(model, device_ids=None if self.is_cpu else [self.device.index])


class LanguageModel(nn.Module):
    """A decoder of transformer blocks over token ids of shape (batch, tokens)."""

    def __init__(self, width: int, layers: int, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        block = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        """The loss of predicting the next token."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1] - 1, device=tokens.device)
        hidden = self.blocks(self.embedding(tokens[:, :-1]), mask=mask, is_causal=True)
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten())


class SequenceModel(nn.Module):
    """LSTM layers over token ids of shape (batch, tokens)."""

    def __init__(self, width: int, layers: int, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        """The loss of predicting the next token."""
        hidden, _ = self.layers(self.embedding(tokens[:, :-1]))
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten())


class Pictures(Dataset[tuple[Tensor, Tensor]]):
    """Pictures that are decoded on the CPU; for 20 s of every minute, from a disk that others use too."""

    def __init__(self, pixels: int) -> None:
        self.pixels = pixels

    def __len__(self) -> int:
        """More than are ever read."""
        return 1 << 24

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """A picture, (3, pixels, pixels), and its class."""
        if time.monotonic() % 60 < 20:
            time.sleep(0.015)
        picture = torch.rand(3, self.pixels + 32, self.pixels + 32)
        top = random.randrange(32)
        return picture[:, top : top + self.pixels, top : top + self.pixels].clone(), torch.tensor(index % 1000)


def convolutions(width: int) -> nn.Module:
    """A classifier of pictures with residual blocks."""

    class Block(nn.Module):
        def __init__(self, channels: int, step: int) -> None:
            super().__init__()
            inner = channels // 2 if step > 1 else channels
            self.skip = nn.Conv2d(inner, channels, 1, step)
            self.path = nn.Sequential(
                nn.Conv2d(inner, channels, 3, step, 1), nn.BatchNorm2d(channels), nn.ReLU(True),
                nn.Conv2d(channels, channels, 3, 1, 1), nn.BatchNorm2d(channels),
            )  # fmt: skip

        def forward(self, x: Tensor) -> Tensor:
            return functional.relu(self.path(x) + self.skip(x))

    stages = [Block(width << stage, step) for stage in range(4) for step in ((2 if stage else 1), 1, 1)]
    return nn.Sequential(
        nn.Conv2d(3, width, 7, 4, 3), *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width << 3, 1000)
    )


def language_model(run: Run) -> tuple[nn.Module, int]:
    """A language model, and the size of its vocabulary."""
    words = run.size(32_000, 100)
    return LanguageModel(run.size(1536, 64), run.size(16, 1), words).to(run.device), words


def batches(run: Run, words: int, sequences: int, lengths: tuple[int, ...]) -> Iterator[Tensor]:
    """Batches of token ids; every 40 batches, their length changes, as with sequences sorted by length."""
    for number in itertools.count():
        tokens = lengths[number // 40 % len(lengths)]
        yield torch.randint(words, (sequences, run.size(tokens, 16)), device=run.device)


def documents(run: Run, words: int, data: Iterator[Tensor]) -> Iterator[Tensor]:
    """Batches whose documents were split into words before, in Python; their length rises and falls."""
    for tokens in data:
        count = int(run.size(400_000, 500) * max(0.0, math.sin(run.elapsed / 9)) ** 2)
        text = (f"word{number & 1023}" for number in range(count))
        ids = sum(hash(word) % words for word in text) % words
        tokens[0, 0] = ids
        yield tokens


def train(run: Run, model: nn.Module, data: Iterator[Tensor]) -> Iterator[int]:
    """Train until the time is over; yields the number of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step, tokens in enumerate(data):
        if run.is_over:
            return
        with run.autocast():
            loss = model(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 9:
            loss.item()
        yield step


def evaluate(run: Run, model: nn.Module, data: Iterator[Tensor], seconds: float) -> None:
    """Evaluate on small batches, with a metric on the CPU after each."""
    until = time.monotonic() + seconds
    model.eval()
    with torch.no_grad(), run.autocast():
        while time.monotonic() < until and not run.is_over:
            loss = float(model(next(data)[:2]))
            time.sleep(0.02 + 0.001 * (loss > 0))
    model.train()


def checkpoint(model: nn.Module) -> int:
    """Serialize the weights in host memory; returns the size in bytes."""
    buffer = io.BytesIO()
    torch.save({name: weight.cpu() for name, weight in model.state_dict().items()}, buffer)
    return buffer.tell()


def pretrain(run: Run) -> None:
    """A transformer, with an evaluation about every 40 s, and a checkpoint after every second one."""
    model, words = language_model(run)
    data = documents(run, words, batches(run, words, run.size(16, 2), (1024, 768, 512, 256)))
    next_pause, pauses = run.elapsed + run.size(30, 1), 0
    for _ in train(run, model, data):
        if run.elapsed >= next_pause:
            evaluate(run, model, data, run.size(6, 1))
            if (pauses := pauses + 1) % 2 == 0:
                checkpoint(model)
            next_pause = run.elapsed + run.size(36, 1)


def train_lstm(run: Run) -> None:
    """An LSTM, whose short kernels never fill the GPU; every 30 s a pause of the learning-rate scheduler's tests."""
    words = run.size(16_000, 100)
    model = SequenceModel(run.size(1024, 32), run.size(3, 1), words).to(run.device)
    data = batches(run, words, run.size(48, 2), (160, 96, 224))
    for _ in train(run, model, data):
        run.synchronize()
        time.sleep(0.015)
        if run.elapsed % 30 < 0.1:
            evaluate(run, model, data, run.size(4, 1))


def serve(run: Run) -> None:
    """Answers batches of requests, whose rate rises and falls; its weights and caches hold 22 GiB."""
    words = run.size(32_000, 100)
    model = LanguageModel(run.size(2048, 64), run.size(12, 1), words).to(run.device, torch.bfloat16).eval()
    held = torch.empty(run.size(20 * GIBIBYTE, 1 << 20), dtype=torch.uint8, device=run.device)
    choice = random.Random(1)
    with torch.no_grad():
        while not run.is_over:
            load = 0.5 + 0.5 * math.sin(run.elapsed / 14)
            requests = 1 + int(choice.expovariate(1 / (1 + 12 * load)))
            for _ in range(min(requests, 24)):
                model(torch.randint(words, (run.size(8, 1), run.size(512, 8)), device=run.device))
            held[:1].zero_()
            run.synchronize()
            time.sleep(choice.expovariate(1 / (0.03 + 0.9 * (1 - load) ** 2)))


def train_cnn(run: Run) -> None:
    """A convolutional network on all ranks, which waits for its DataLoader for 20 s of every minute."""
    pixels = run.size(224, 32)
    model = run.parallel(convolutions(run.size(96, 8)).to(run.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    workers = run.size(12, 1)
    loader = DataLoader(Pictures(pixels), run.size(128, 2), num_workers=workers, pin_memory=not run.is_cpu)
    for pictures, classes in loader:
        with run.autocast():
            loss = functional.cross_entropy(
                model(pictures.to(run.device, non_blocking=True)), classes.to(run.device, non_blocking=True)
            )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        over = torch.tensor(float(run.is_over), device=run.device)
        if run.ranks > 1:
            torch.distributed.all_reduce(over)  # all ranks stop after the same step
        if over.item():
            return


def finetune(run: Run) -> None:
    """Keeps what each step computed, so that its memory grows until none is left, in the middle of the time."""
    model, words = language_model(run)
    kept: list[Tensor] = []
    limit = run.size(MAX_BYTES, 1 << 24)
    for _ in train(run, model, batches(run, words, run.size(8, 2), (512, 768))):
        share = run.elapsed / (run.seconds / 2)
        while run.is_cpu is False and torch.cuda.memory_allocated(run.device) < share * limit:
            kept.append(torch.empty(GIBIBYTE, dtype=torch.uint8, device=run.device))
        if run.is_cpu and share >= 1:
            raise torch.OutOfMemoryError(f"CPU: {len(kept)} tensors are kept")
        run.synchronize()
        time.sleep(0.05)


def notebook(run: Run) -> None:
    """Loads a model, tries it for some seconds, and is forgotten."""
    held = torch.empty(run.size(HELD_BYTES - GIBIBYTE, 1 << 20), dtype=torch.uint8, device=run.device)
    a = torch.randn(run.size(8192, 64), run.size(8192, 64), device=run.device)
    for _ in range(run.size(40, 2)):
        a = functional.normalize(a @ a)
        held[:1].zero_()
        run.synchronize()
    time.sleep(max(0.0, run.seconds - run.elapsed))


def pretrain_ddp(run: Run) -> None:
    """A transformer on all ranks. After 45 % of the time, the last rank waits for a writer that never comes."""
    model, words = language_model(run)
    written = threading.Event()
    for step in train(run, run.parallel(model), batches(run, words, run.size(8, 2), (1024, 512))):
        if run.rank == run.ranks - 1 and step % 20 == 19 and run.elapsed > 0.45 * run.seconds:
            wait_for_writer(written)


def wait_for_writer(written: threading.Event) -> None:
    """Wait until the checkpoint is written, by a thread that has died."""
    written.wait()


PROGRAMS: dict[str, Callable[[Run], None]] = {
    program.__name__: program for program in (pretrain, train_lstm, serve, train_cnn, finetune, notebook, pretrain_ddp)
}


def main() -> None:
    """Run the program of this file's name; it cannot outlive its time, whatever it waits for."""
    run = Run()
    timer = threading.Timer(run.seconds + 15, os._exit, (0,))
    timer.daemon = True
    timer.start()
    torch.manual_seed(run.rank)
    PROGRAMS[run.program](run)


if __name__ == "__main__":
    main()
