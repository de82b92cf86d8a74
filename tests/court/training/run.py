"""Runs one case: ``python run.py MODULE NAME [--cured] [--seconds N] [--device cuda|cpu]``.

Prints a JSON line when the first steps are over, and one at the end. SIGTERM ends the run earlier.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import torch
import torch.distributed as dist

WARM_UP_STEPS = 10
BLOCK_SECONDS = 0.4
MAX_DEVICE_BYTES = 24 << 30

Value = TypeVar("Value")


class Run:
    """One training run, whose `steps` measure themselves.

    Attributes:
        is_cured: Whether the cure is applied.
        device: Where the model is.
        rank: The rank of this process.
        samples_per_step: Set it where the cure changes the size of the batch.
    """

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.is_cured: bool = chosen.cured
        self.rank = int(os.environ.get("RANK", "0"))
        self.samples_per_step = 1
        self._seconds: float = chosen.seconds
        self._is_stopping = False
        self._agreements = 0
        self.device = torch.device("cpu")
        if chosen.device == "cuda":
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(self.device)
            total = torch.cuda.get_device_properties(self.device).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, MAX_DEVICE_BYTES / total), self.device)
        signal.signal(signal.SIGTERM, self._stop)

    def choose(self, on_gpu: Value, on_cpu: Value) -> Value:
        """The value for the device of this run."""
        return on_gpu if self.device.type == "cuda" else on_cpu

    def steps(self, batches: Iterable[Any] | None = None) -> Iterator[Any]:
        """Yield the batches, epoch after epoch, or numbers, until the time is over.

        On a GPU, events measure blocks of steps, and are read after the last step, so that nothing waits for the GPU.
        """
        source: Iterator[Any] = itertools.count() if batches is None else _epochs(batches)
        yield from itertools.islice(source, WARM_UP_STEPS)
        _show(event="stepping", pid=os.getpid(), rank=self.rank)
        clock = Clock(self.device)
        steps: list[float] = []
        until = time.perf_counter() + self._seconds
        size = 1
        while size:
            start = previous = time.perf_counter()
            for batch in itertools.islice(source, size):
                yield batch
                now = time.perf_counter()
                steps.append(now - previous)
                previous = now
            clock.end_block(size)
            is_over = self._is_stopping or previous > until
            fitting = round(BLOCK_SECONDS * size / (previous - start))
            size = self._agree(0 if is_over else max(1, min(2 * size, fitting)))
        if self.rank == 0:
            _show(
                event="end",
                steps=len(steps),
                step_seconds=clock.step_seconds(),
                worst_seconds=sorted(steps)[-3:],
                samples_per_step=self.samples_per_step,
            )

    def skip(self, reason: str) -> None:
        """End this process because something is missing."""
        _show(event="skipped", reason=reason)
        sys.exit(0)

    def _stop(self, *_: object) -> None:
        self._is_stopping = True

    def _agree(self, size: int) -> int:
        """The number of rank 0, without work for the GPU."""
        if not dist.is_initialized():
            return size
        self._agreements += 1
        store, key = dist.distributed_c10d._get_default_store(), f"size{self._agreements}"
        if self.rank == 0:
            store.set(key, str(size))
        return int(store.get(key))


class Clock:
    """Measures blocks of steps: with events of a GPU, or the time of the CPU."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._sizes: list[int] = []
        self._marks = [self._mark()]

    def end_block(self, size: int) -> None:
        """Note the end of a block of that many steps."""
        self._sizes.append(size)
        self._marks.append(self._mark())

    def step_seconds(self) -> float:
        """The median time of a step, where each step takes the mean time of its block."""
        if self._on_gpu:
            torch.cuda.synchronize()
        times: list[float] = []
        for start, end, size in zip(self._marks, self._marks[1:], self._sizes):
            seconds = start.elapsed_time(end) / 1e3 if self._on_gpu else end - start
            times += [seconds / size] * size
        return statistics.median(times)

    def _mark(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def _epochs(batches: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from batches


def _show(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")  # in one piece, because ranks share the output
    sys.stdout.flush()


def main() -> None:
    """Run the case of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module")
    parser.add_argument("name")
    parser.add_argument("--cured", action="store_true", help="without the cause")
    parser.add_argument("--seconds", type=float, default=6.0, help="measured time, after the first steps")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--ranks", type=int, default=1, help="processes of the job, each with its GPU")
    parser.add_argument("--wait", action="store_true", help="start when a line arrives on standard input")
    chosen = parser.parse_args()
    if chosen.wait:
        sys.stdin.readline()
    if chosen.device == "cuda" and torch.cuda.device_count() < chosen.ranks:
        _show(event="skipped", reason=f"needs {chosen.ranks} GPUs")
        return
    if chosen.ranks > 1 and "RANK" not in os.environ:
        arguments = [argument for argument in sys.argv if argument != "--wait"]
        launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
        os.execv(sys.executable, [sys.executable, *launcher, f"--nproc-per-node={chosen.ranks}", *arguments])
    getattr(importlib.import_module(chosen.module), chosen.name)(Run(chosen))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
