"""Measures the cost of the probe: ``python -m tests.perf.probe [--groups N] [--seconds S] [--interval I]``, on a GPU.

One process trains a transformer without pause: first a wide one, whose steps take as long as its kernels, then a narrow
one, whose steps take as long as Python needs to launch the kernels, so that every wait for the GIL shows. Phases run in
groups of four: without the probe, with it, with it, without it; a client reads while the probe runs. The differences
between adjacent phases without the probe show the noise.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.perf.training import WIDTHS, ratio_line
from tests.probe.children import Probe, sockets

REPOSITORY: Final = Path(__file__).parents[2]
_TRAINING: Final = """
import json, sys, time
import torch
from gpumon import probe
width, groups, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
device = torch.device("cuda", 0)
layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, device=device)
model = torch.nn.TransformerEncoder(layer, 6)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
host = torch.randn(32, 128, width).pin_memory()
def train(seconds):
    steps, until = [], time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        batch = host.to(device, non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        steps.append(time.perf_counter() - began)
    return steps
train(5)
for is_there in (False, True, True, False) * groups:
    if is_there:
        probe.start()
    train(0.5)
    print(json.dumps([is_there, train(seconds)]), flush=True)
    probe.stop()
"""


class Listener(threading.Thread):
    """Reads from every probe, as gpumon's screen does."""

    def __init__(self, folder: Path, interval: float) -> None:
        super().__init__(daemon=True)
        self.costs: list[dict[str, Any]] = []
        self.readings = 0
        self.over = threading.Event()
        self._folder = folder
        self._interval = interval

    def run(self) -> None:
        """Read until `over` is set."""
        while not self.over.wait(0.05):
            for path in sockets(self._folder):
                try:
                    self._listen(Probe(path))
                except (OSError, AssertionError):  # it has ended
                    continue

    def _listen(self, probe: Probe) -> None:
        probe.send({"ask": "pace", "interval_seconds": self._interval})
        last: dict[str, Any] = {}
        try:
            while True:
                last = probe.until("statistics")
                self.readings += 1
        finally:
            self.costs += [last["cost"]] if last else []
            probe.close()


def measure(name: str, chosen: argparse.Namespace) -> None:
    """Train one model, and print the durations of its steps."""
    phases: list[tuple[bool, list[float]]] = []
    with tempfile.TemporaryDirectory() as folder:
        listener = Listener(Path(folder), chosen.interval)
        listener.start()
        command = [chosen.python, "-c", _TRAINING, str(WIDTHS[name]), str(chosen.groups), str(chosen.seconds)]
        own = {**os.environ, "GPUMON_PROBE_DIR": f"{folder}/sockets", "PYTHONPATH": _paths()}
        with subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            phases += [tuple(json.loads(line)) for line in process.stdout]
        listener.over.set()
    without = [steps for is_there, steps in phases if not is_there]
    with_probe = [steps for is_there, steps in phases if is_there]
    print(f"{name}: a model {WIDTHS[name]} wide, {listener.readings} readings")
    for kind, result in (("without the probe", without), ("with the probe", with_probe)):
        steps = sorted(step for item in result for step in item)
        late = steps[int(0.99 * len(steps))]
        median = statistics.median(steps)
        print(f"  {kind:18} {len(steps):6} steps, median {median * 1e3:.4f} ms, 99th percentile {late * 1e3:.3f} ms")
    print(ratio_line("with / without, means of adjacent phases", ratios(without, with_probe)))
    print(ratio_line("with / without, medians of adjacent phases", ratios(without, with_probe, statistics.median)))
    print(ratio_line("noise: without / without, means", ratios(without[1:-1:2], without[2::2])))
    print(ratio_line("noise: without / without, medians", ratios(without[1:-1:2], without[2::2], statistics.median)))
    for word, unit, scale in (("share", "% of the process's time", 100.0), ("seconds", "us a reading", 1e6)):
        print(
            f"  the probe's own {word}: {statistics.median(each[word] for each in listener.costs) * scale:.4f} {unit}"
        )


def ratios(
    phases: Sequence[Sequence[float]],
    others: Sequence[Sequence[float]],
    of: Callable[[Sequence[float]], float] = statistics.fmean,
) -> list[float]:
    """The ratios of phases to the phases next to them."""
    return [of(b) / of(a) for a, b in zip(phases, others, strict=True)]


def _paths() -> str:
    return os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--groups", type=int, default=8, help="of four phases, two with and two without; at least three"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a phase")
    parser.add_argument("--interval", type=float, default=0.5, help="seconds from reading to reading")
    parser.add_argument("--python", default=sys.executable, help="the one that has torch")
    chosen = parser.parse_args()
    for name in WIDTHS:
        measure(name, chosen)


if __name__ == "__main__":
    main()
