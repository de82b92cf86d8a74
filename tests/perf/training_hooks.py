"""Measures the cost of counting steps: ``python -m tests.perf.training_hooks [--blocks N] [--device cuda]``.

One process trains a small model on data of a DataLoader. Blocks of steps alternate between the hooks of the probe and
none, in pairs whose order alternates; the differences between blocks without them show the noise. It also measures the
CPU time of a probe that samples the main thread.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
_PROGRAM: Final = """
import json, statistics, sys, time
sys.path.insert(0, sys.argv[1])
import torch
from gpumon.probe.agent.hooks import Hooks
from gpumon.probe.agent.training import Training
device, blocks, seconds, width = sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
class Batches(torch.utils.data.IterableDataset):
    def __iter__(self):
        batch = torch.randn(32, width)
        while True:
            yield batch
batches = iter(torch.utils.data.DataLoader(Batches(), batch_size=None))
training = Training()
def train(seconds):
    steps, until = 0, time.perf_counter() + seconds
    cpu = time.thread_time()
    started = time.perf_counter()
    while time.perf_counter() < until:
        loss = model(next(batches).to(device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device != "cpu":
            loss.item()
        steps += 1
    return (time.thread_time() - cpu) / steps, (time.perf_counter() - started) / steps
train(3 * seconds)
for number in range(blocks):
    pair = {}
    for has_hooks in ((False, True) if number % 2 else (True, False)):
        hooks = Hooks(training)
        if has_hooks:
            hooks.install()
        pair[has_hooks] = train(seconds)
        hooks.remove()
    print(json.dumps([pair[False], pair[True]]), flush=True)
"""


def measure(name: str, chosen: argparse.Namespace, width: int) -> None:
    """Train, and print the differences of steps with and without the hooks."""
    command = [chosen.python, "-c", _PROGRAM, REPOSITORY, chosen.device, chosen.blocks, chosen.seconds, width]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    pairs = [json.loads(line) for line in done.stdout.splitlines()]
    for kind, index in (("CPU time", 0), ("duration", 1)):
        without = [pair[0][index] for pair in pairs]
        differences = [1e6 * (pair[1][index] - pair[0][index]) for pair in pairs]
        noise = [1e6 * abs(b - a) for a, b in itertools.pairwise(without)]
        step = statistics.median(without)
        difference = statistics.median(differences)
        print(
            f"{name}: {kind} of a step {1e6 * step:.1f} us, with the hooks {difference:+.2f} us "
            f"({difference / step / 1e4:+.3f} %), noise between blocks {statistics.median(noise):.2f} us"
        )


def measure_observation(hertz: int, seconds: float) -> None:
    """Print the CPU time that sampling the main thread takes, without that of the probe's thread around it."""
    from gpumon.probe.agent.observation import observe
    from gpumon.probe.agent.training import Training

    samples = observe(Training(), {"milliseconds": int(1000 * seconds), "hertz": hertz})
    cpu, started = 0.0, time.monotonic()
    while True:
        before = time.thread_time()
        try:
            wait = next(samples)
        except StopIteration:
            break
        cpu += time.thread_time() - before
        time.sleep(max(0.0, wait))
    share = 100 * cpu / (time.monotonic() - started)
    print(f"sampling at {hertz} Hz: {share:.3f} % of a core")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=20, help="pairs of blocks, one with the hooks and one without")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a block")
    parser.add_argument("--device", default="cpu", help="where the model is: cpu or cuda")
    parser.add_argument("--python", default=sys.executable, help="the one that has torch")
    chosen = parser.parse_args()
    for name, width in (("small model", 32), ("larger model", 1024)):
        measure(name, chosen, width)
    measure_observation(100, 5.0)


if __name__ == "__main__":
    main()
