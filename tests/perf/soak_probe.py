"""Measures the memory of programs with a probe for an hour: ``python -m tests.perf.soak_probe --csv FILE``.

Two programs run with the probe, as `gpumon watch` starts them: one trains a small model with torch on the CPU, the
other uses the stand-in for torch, whose allocator has a GPU. A client asks both once a second for the statistics, the
segments of the allocator, its summary, the stacks and the flight recorder; without a CUDA context, segments and summary
are refused. A third program trains as the first one does, without the probe: it shows what torch itself adds.
"""

import argparse
import csv
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from gpumon.cli.watch import watched_environment
from tests.probe.children import FAKE_TORCH, Probe, sockets
from tests.processes import PROC

SAMPLE_SECONDS: Final = 10.0
_START_SECONDS: Final = 120.0
"""Importing torch takes long on a busy host."""
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_REQUESTS: Final = ("segments", "summary", "stacks", "flight_recorder")
_TRAINING: Final = """
import time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
optimizer = torch.optim.AdamW(model.parameters())
while True:
    loss = model(torch.randn(32, 64)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.05)
"""
_ALLOCATIONS: Final = """
import time, torch
blocks = [torch.cuda.allocate(0, 20 << 20) for _ in range(500)]
while True:
    for block in blocks[::2]:
        block["used"] = not block["used"]
    time.sleep(0.05)
"""
PROGRAMS: Final = {"cpu": _TRAINING, "allocator": _ALLOCATIONS, "no_probe": _TRAINING}


def measure(minutes: float, path: Path, warm: float) -> str:
    """Run the programs, write the samples, and return the results in Markdown."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpumon-soak-")))
        pids = {name: _start(name, folder, stack).pid for name in PROGRAMS}
        clients = {name: _client(folder, pids[name]) for name in PROGRAMS if name != "no_probe"}
        counts: Counter[str] = Counter()
        rows: list[list[float]] = []
        start = next_sample = time.monotonic()
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["seconds", *(f"{name}_rss_mebibytes" for name in PROGRAMS)])
            while (now := time.monotonic()) < start + 60 * minutes:
                for name, client in clients.items():
                    for kind in _REQUESTS:
                        is_answered = client.ask(kind)["ok"]
                        counts[f"{name} {kind} {'answered' if is_answered else 'refused'}"] += 1
                if now >= next_sample:
                    next_sample += SAMPLE_SECONDS
                    rows.append([now - start, *map(_resident_mebibytes, pids.values())])
                    writer.writerow([round(value, 2) for value in rows[-1]])
                    file.flush()
                time.sleep(max(0.0, now + 1.0 - time.monotonic()))
    return _table(rows, counts, 60 * warm)


def _start(name: str, folder: Path, stack: ExitStack) -> "subprocess.Popen[bytes]":
    own = {"GPUMON_PROBE_DIR": str(folder / "sockets"), "XDG_STATE_HOME": str(folder)}
    environment = {**os.environ, **own}
    if name == "allocator":
        environment["PYTHONPATH"] = str(FAKE_TORCH)
    if name != "no_probe":
        environment = watched_environment(environment)
    process = subprocess.Popen([sys.executable, "-c", PROGRAMS[name]], env=environment, cwd=folder)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def _client(folder: Path, pid: int) -> Probe:
    deadline = time.monotonic() + _START_SECONDS
    while not (paths := [path for path in sockets(folder) if path.name.startswith(f"{pid}-")]):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} has no probe after {_START_SECONDS:.0f} s")
        time.sleep(0.1)
    client = Probe(paths[0])
    client.send({"ask": "pace", "interval_seconds": 1.0})
    return client


def _resident_mebibytes(pid: int) -> float:
    return int((PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE_BYTES / (1 << 20)


def _table(rows: list[list[float]], counts: Counter[str], warm_seconds: float) -> str:
    warm = [row for row in rows if row[0] >= warm_seconds]
    hours = [row[0] / 3600 for row in warm]
    lines = ["| program | RSS: start, end, peak | slope after the warm-up |", "|---|---|---|"]
    for column, name in enumerate(PROGRAMS, 1):
        values = [row[column] for row in rows]
        slope = statistics.linear_regression(hours, [row[column] for row in warm]).slope
        lines.append(f"| {name} | {values[0]:.1f}, {values[-1]:.1f}, {max(values):.1f} MiB | {slope:.2f} MiB/h |")
    return "\n".join([*lines, "", *(f"{name}: {count}" for name, count in sorted(counts.items()))])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.perf.soak_probe", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="length of the run (%(default)s)")
    parser.add_argument("--warm", type=float, default=10.0, help="minutes before the slope is measured (%(default)s)")
    parser.add_argument("--csv", type=Path, required=True, metavar="FILE", help="write the samples to a file")
    options = parser.parse_args()
    if options.minutes <= options.warm:
        parser.error("--minutes must be longer than --warm")
    print(measure(options.minutes, options.csv, options.warm))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leaves no process behind
    main()
