"""What gpumon costs a training: ``python -m tests.perf.training [--phases N] [--seconds S] [--interval I]``, on a GPU.

One process trains a small transformer on the first GPU without a break. Meanwhile gpumon, in a pseudo-terminal, is
there and is not, in turn; every step belongs to the time that it fell into. The time between two phases of one kind
tells what is noise.
"""

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import IO, Final

from tests.terminal import Terminal

SETTLE_SECONDS: Final = 2.0
_TRAINING: Final = """
import time
import torch
device = torch.device("cuda", 0)
layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, device=device)
model = torch.nn.TransformerEncoder(layer, 6)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
host = torch.randn(32, 128, 512).pin_memory()
while True:
    began = time.perf_counter()
    batch = host.to(device, non_blocking=True)
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    loss.item()
    print(time.monotonic(), time.perf_counter() - began, flush=True)
"""

Step = tuple[float, float]
"""When it ended, on the monotonic clock, and how many seconds it took."""


class Training:
    """The process that trains, and its steps."""

    def __init__(self, python: str) -> None:
        self.steps: list[Step] = []
        self.process = subprocess.Popen([python, "-c", _TRAINING], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            ended, seconds = line.split()
            self.steps.append((float(ended), float(seconds)))

    def between(self, begin: float, end: float) -> list[float]:
        """The lengths, in seconds, of the steps in a time."""
        return [seconds for ended, seconds in self.steps if begin <= ended - seconds and ended < end]

    def end(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.wait()


def phase(training: Training, seconds: float, gpumon: Sequence[str]) -> list[float]:
    """The steps of one phase; without a command nothing runs beside the training."""
    with ExitStack() as stack:
        if gpumon:
            environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
            terminal = stack.enter_context(Terminal(gpumon, environment, 50, 160))
            terminal.wait_for(r"\d\s?%")
        time.sleep(SETTLE_SECONDS)
        began = time.monotonic()
        time.sleep(seconds)
        steps = training.between(began, time.monotonic())
    time.sleep(0.5)
    return steps


def spread(phases: Sequence[Sequence[float]]) -> float:
    """How far apart the medians of phases of one kind are, as a share of their middle."""
    medians = [statistics.median(steps) for steps in phases]
    return (max(medians) - min(medians)) / statistics.median(medians)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phases", type=int, default=6, help="of each kind")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a phase")
    parser.add_argument("--interval", default="0.1", help="gpumon's, in seconds")
    parser.add_argument("--python", default=sys.executable, help="the one that has torch")
    chosen = parser.parse_args()
    gpumon = [sys.executable, "-m", "gpumon", "--interval", chosen.interval]
    training = Training(chosen.python)
    try:
        while len(training.steps) < 200:
            assert training.process.poll() is None, "the training ended"
            time.sleep(0.1)
        without: list[list[float]] = []
        beside: list[list[float]] = []
        for _ in range(chosen.phases):
            without.append(phase(training, chosen.seconds, ()))
            beside.append(phase(training, chosen.seconds, gpumon))
    finally:
        training.end()
    for name, phases in (("without", without), ("with", beside)):
        steps = sorted(step for each in phases for step in each)
        late = steps[int(0.99 * len(steps))]
        print(
            f"{name:8} {len(steps):6} steps, median {statistics.median(steps) * 1e3:.3f} ms, 99th percentile"
            f" {late * 1e3:.3f} ms; medians of its {len(phases)} phases lie {spread(phases):.2%} apart"
        )
    ratios = [statistics.median(b) / statistics.median(a) for a, b in zip(without, beside, strict=True)]
    print(
        f"with / without, phase by phase: median {statistics.median(ratios):.4f}, {min(ratios):.4f}-{max(ratios):.4f}"
    )


if __name__ == "__main__":
    main()
