"""Measures what stage 1 of `gpumon why` costs: ``python -m tests.perf.training_hooks [--seconds S] [--device cuda]``.

One process trains a small model on data of a DataLoader, in pairs of short blocks: one block with what is measured, one
without, in random order. What else the host does is mostly the same in both blocks of a pair. The trimmed mean of the
differences has a 95 % confidence interval by bootstrap. Measured are the hooks that count the steps, and what an
observation adds to them: a thread that samples the main thread, as that of the probe does. The last line of a part is
the CPU time of that thread, which may be on another core than the training thread.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

REPOSITORY: Final = Path(__file__).parents[2]
HOOKS, OBSERVATION = "hooks", "observation"
HERTZ: Final = 20
"""As `gpumon why` samples."""
_TRIMMED: Final = 0.25
_RESAMPLES: Final = 1000
_CONFIDENCE: Final = 0.95
_WINDOW_SECONDS: Final = {HOOKS: 0.03, OBSERVATION: 0.15}
"""Length of a block: of an observation it must contain several samples."""
_PROGRAM: Final = """
import json, random, sys, threading, time
sys.path.insert(0, sys.argv[1])
import torch
from gpumon.probe.agent.hooks import Hooks
from gpumon.probe.agent import observation
from gpumon.probe.agent.training import Training
observation._SERVE_SECONDS = 0.0  # it can be stopped after each sample
part, device, seconds, window, width, hertz = *sys.argv[2:4], *map(float, sys.argv[4:])
torch.set_num_threads(1)
width = int(width)
model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
class Batches(torch.utils.data.IterableDataset):
    def __iter__(self):
        batch = torch.randn(32, width)
        while True:
            yield batch
batches = iter(torch.utils.data.DataLoader(Batches(), batch_size=None))
training = Training()
hooks = Hooks(training)
hooks.install()
functions = list(hooks._functions)
assert functions
def train(steps):
    cpu, started = time.thread_time(), time.perf_counter()
    for _ in range(steps):
        loss = model(next(batches).to(device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device != "cpu":
            loss.item()
    return (time.thread_time() - cpu) / steps, (time.perf_counter() - started) / steps
class Sampler(threading.Thread):
    # Goes on with an observation, as the probe's thread does, while `wanted` is set.
    def __init__(self):
        super().__init__(daemon=True)
        self.wanted, self.is_idle, self.cpu, self.active = threading.Event(), threading.Event(), 0.0, 0.0
        self.is_idle.set()
    def run(self):
        samples = None
        while True:
            self.wanted.wait()
            self.is_idle.clear()
            before, since = time.thread_time(), time.monotonic()
            while self.wanted.is_set():
                samples = samples or observation.observe(training, {"milliseconds": 30000, "hertz": int(hertz)})
                wait = next(samples, None)
                if wait is None:
                    samples = None
                else:
                    time.sleep(max(0.0, wait))
            self.cpu += time.thread_time() - before
            self.active += time.monotonic() - since
            self.is_idle.set()
sampler = Sampler()
if part == "observation":
    sampler.start()
def switch(is_on):
    if part == "hooks" and is_on:
        hooks.add_step_hook()
        training.collections.start()
        for function in functions:  # the same code as before: Python specializes new code in its first calls
            function._function.__code__ = function._code
    elif part == "hooks":
        hooks.remove()
    elif is_on:
        sampler.wanted.set()
    else:
        sampler.wanted.clear()
        while not sampler.is_idle.is_set():
            train(1)
    train(5)
train(50)
steps = max(5, round(window / min(train(20)[1] for _ in range(5))))
until = time.monotonic() + seconds
while time.monotonic() < until:
    pair = {}
    for is_on in random.sample((False, True), 2):
        switch(is_on)
        pair[is_on] = train(steps)
    print(json.dumps([pair[False], pair[True]]))
print(json.dumps({"steps": steps, "share": sampler.cpu / sampler.active if sampler.active else None}), flush=True)
"""


class Interval(NamedTuple):
    """An estimate with its confidence interval."""

    value: float
    low: float
    high: float


def trimmed_mean(values: Sequence[float]) -> float:
    """The mean of the middle half: a few blocks in which another process had the core do not count."""
    ordered = sorted(values)
    cut = int(_TRIMMED * len(ordered))
    return statistics.fmean(ordered[cut : len(ordered) - cut])


def interval(values: Sequence[float], seed: int = 1) -> Interval:
    """The trimmed mean, with its 95 % confidence interval by bootstrap."""
    chance = random.Random(seed)
    means = sorted(trimmed_mean(chance.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    outside = int((1 - _CONFIDENCE) / 2 * _RESAMPLES)
    return Interval(trimmed_mean(values), means[outside], means[-1 - outside])


def measure(part: str, name: str, width: int, chosen: argparse.Namespace) -> None:
    """Train, and print the differences between steps with and without what is measured."""
    arguments = [part, chosen.device, chosen.seconds, _WINDOW_SECONDS[part], width, chosen.hertz]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [chosen.python, "-c", _PROGRAM, str(REPOSITORY), *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    *pairs, end = [json.loads(line) for line in done.stdout.splitlines()]
    for kind, index in (("CPU time", 0), ("duration", 1)):
        step = statistics.median(without[index] for without, _ in pairs)
        difference = interval([(with_it[index] - without[index]) / step for without, with_it in pairs])
        percent = [100 * value for value in difference]
        print(
            f"{part}, {name}: {kind} of a step {1e6 * step:.1f} us, {difference.value * step * 1e6:+.2f} us = "
            f"{percent[0]:+.3f} % (95 % interval {percent[1]:+.3f} to {percent[2]:+.3f} %), "
            f"{len(pairs)} pairs of {end['steps']} steps",
            flush=True,
        )
    if end["share"] is not None:
        print(
            f"{part}, {name}: the thread that samples at {chosen.hertz} Hz needs {100 * end['share']:.3f} % of a core"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="time for each part and model")
    parser.add_argument("--parts", default=f"{HOOKS},{OBSERVATION}", help="what is measured")
    parser.add_argument("--hertz", type=int, default=HERTZ, help="rate of the samples")
    parser.add_argument("--device", default="cpu", help="where the model is: cpu or cuda")
    parser.add_argument("--python", default=sys.executable, help="the one that has torch")
    chosen = parser.parse_args()
    for part in chosen.parts.split(","):
        for name, width in (("small model", 256), ("larger model", 512)):
            measure(part, name, width, chosen)


if __name__ == "__main__":
    main()
