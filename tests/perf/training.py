"""What gpumon costs a training: ``python -m tests.perf.training [--phases N] [--seconds S] [--interval I]``, on a GPU.

One process trains a transformer on the first GPU without a break: a wide one, whose steps are as long as its kernels,
and then a narrow one, whose steps are as long as Python takes to launch them. Meanwhile gpumon, in a pseudo-terminal,
is not there, is there, is there, is not there, and so on; every step belongs to the time that it fell into. How far
phases without gpumon differ from their neighbours without it tells what is noise.
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

SETTLE_SECONDS: Final = 1.5
WIDTHS: Final = {"wide": 1536, "narrow": 256}
_TRAINING: Final = """
import sys
import time
import torch
width = int(sys.argv[1])
device = torch.device("cuda", 0)
layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, device=device)
model = torch.nn.TransformerEncoder(layer, 6)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
host = torch.randn(32, 128, width).pin_memory()
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

    def __init__(self, python: str, width: int) -> None:
        self.steps: list[Step] = []
        self.process = subprocess.Popen([python, "-c", _TRAINING, str(width)], stdout=subprocess.PIPE, text=True)
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


def ratios(phases: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> list[float]:
    """How the medians of phases compare with those of their neighbours."""
    return [statistics.median(b) / statistics.median(a) for a, b in zip(phases, others, strict=True)]


def told(name: str, found: Sequence[float]) -> str:
    """Ratios as a line: their median, and between which the middle half of them lies."""
    low, middle, high = statistics.quantiles(found, n=4)
    return f"  {name:46} {middle:.4f} ({low:.4f} to {high:.4f})"


def measure(name: str, python: str, phases: int, seconds: float, gpumon: Sequence[str]) -> None:
    """Trains one model, and prints what its steps took."""
    training = Training(python, WIDTHS[name])
    try:
        while len(training.steps) < 200:
            assert training.process.poll() is None, "the training ended"
            time.sleep(0.1)
        without: list[list[float]] = []
        beside: list[list[float]] = []
        for _ in range(phases):  # a drift, of clocks or of the machine, falls on both kinds alike
            without.append(phase(training, seconds, ()))
            beside += [phase(training, seconds, gpumon), phase(training, seconds, gpumon)]
            without.append(phase(training, seconds, ()))
    finally:
        training.end()
    print(f"{name}: a model {WIDTHS[name]} wide")
    for kind, found in (("without gpumon", without), ("with gpumon", beside)):
        steps = sorted(step for each in found for step in each)
        late = steps[int(0.99 * len(steps))]
        median = statistics.median(steps)
        print(f"  {kind:16} {len(steps):6} steps, median {median * 1e3:.3f} ms, 99th percentile {late * 1e3:.3f} ms")
    print(told("with / without, neighbours in time", ratios(without, beside)))
    print(told("noise: without / without, neighbours in time", ratios(without[1:-1:2], without[2::2])))


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--phases", type=int, default=8, help="groups of four, two with and two without; at least three"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a phase")
    parser.add_argument("--interval", default="0.1", help="gpumon's, in seconds")
    parser.add_argument("--python", default=sys.executable, help="the one that has torch")
    chosen = parser.parse_args()
    gpumon = [sys.executable, "-m", "gpumon", "--interval", chosen.interval]
    for name in WIDTHS:
        measure(name, chosen.python, chosen.phases, chosen.seconds, gpumon)


if __name__ == "__main__":
    main()
