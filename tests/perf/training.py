"""Slowdown of a training job by gpumon: ``python -m tests.perf.training [--phases N] [--seconds S] [--interval I]``.

Needs a GPU. One process continuously trains a transformer on the first GPU: first a wide one, whose step time is that
of its kernels, then a narrow one, whose step time is that of Python launching them. Meanwhile gpumon runs in a
pseudo-terminal in two of every four phases (without, with, with, without), and each step counts for its phase. The
difference between adjacent phases without gpumon is the noise.
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
"""End on the monotonic clock, and duration, in seconds."""


class TrainingJob:
    """The training process, and the steps that it has printed."""

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
        """Durations in seconds of the steps that lie between two times."""
        return [seconds for ended, seconds in self.steps if begin <= ended - seconds and ended < end]

    def stop(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()


def phase(training: TrainingJob, seconds: float, gpumon: Sequence[str]) -> list[float]:
    """Durations of the steps of one phase; with an empty command, gpumon does not run."""
    with ExitStack() as stack:
        if gpumon:
            environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
            terminal = stack.enter_context(Terminal(gpumon, environment, 50, 160))
            terminal.wait_for(r"\d\s?%")
        time.sleep(SETTLE_SECONDS)
        start = time.monotonic()
        time.sleep(seconds)
        steps = training.between(start, time.monotonic())
    time.sleep(0.5)
    return steps


def ratios(phases: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> list[float]:
    """Ratios of the medians of pairs of adjacent phases."""
    return [statistics.median(b) / statistics.median(a) for a, b in zip(phases, others, strict=True)]


def ratio_line(name: str, values: Sequence[float]) -> str:
    """A line with the median of some ratios and their quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"  {name:46} {middle:.4f} ({low:.4f} to {high:.4f})"


def measure(name: str, python: str, phases: int, seconds: float, gpumon: Sequence[str]) -> None:
    """Train one model, and print the durations of its steps."""
    training = TrainingJob(python, WIDTHS[name])
    try:
        while len(training.steps) < 200:
            assert training.process.poll() is None, "the training process exited"
            time.sleep(0.1)
        without: list[list[float]] = []
        monitored: list[list[float]] = []
        for _ in range(phases):  # a drift, such as of clocks, affects both kinds of phases equally
            without.append(phase(training, seconds, ()))
            monitored += [phase(training, seconds, gpumon), phase(training, seconds, gpumon)]
            without.append(phase(training, seconds, ()))
    finally:
        training.stop()
    print(f"{name}: model width {WIDTHS[name]}")
    for kind, phases_of_kind in (("without gpumon", without), ("with gpumon", monitored)):
        steps = sorted(step for steps_of_phase in phases_of_kind for step in steps_of_phase)
        late = steps[int(0.99 * len(steps))]
        median = statistics.median(steps)
        print(f"  {kind:16} {len(steps):6} steps, median {median * 1e3:.3f} ms, 99th percentile {late * 1e3:.3f} ms")
    print(ratio_line("with / without, adjacent phases", ratios(without, monitored)))
    print(ratio_line("noise: without / without, adjacent phases", ratios(without[1:-1:2], without[2::2])))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--phases", type=int, default=8, help="groups of four phases: two with gpumon, two without; at least 3"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds per phase")
    parser.add_argument("--interval", default="0.1", help="gpumon's interval in seconds")
    parser.add_argument("--python", default=sys.executable, help="Python interpreter with torch")
    options = parser.parse_args()
    gpumon = [sys.executable, "-m", "gpumon", "--interval", options.interval]
    for name in WIDTHS:
        measure(name, options.python, options.phases, options.seconds, gpumon)


if __name__ == "__main__":
    main()
