"""Asks NCCL's RAS service of a healthy job many times: ``python -m tests.gpu.ras_polls [--polls N] [--seconds S]``.

A job of two ranks with NCCL trains while gpumon's own client asks as fast as it can, in blocks between blocks without
questions. Printed are the number of questions, the step times of both kinds of blocks, and how the job ended.
``GPUMON_TEST_PYTHON`` is the interpreter with torch. ``--cpu`` tries the program with gloo and a stand-in for NCCL.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from gpumon.distributed.ras_client import RasError, read_report
from tests.distributed.ras_server import FakeRank, FakeService, report_json, serving
from tests.hangs.runner import free_port
from tests.processes import tree

_PROGRAM: Final = """
import os, sys, time
import torch
import torch.distributed as dist

rank, backend = int(os.environ["RANK"]), sys.argv[1]
device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
if backend == "nccl":
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=device)
else:
    dist.init_process_group("gloo")
size = 2048 if backend == "nccl" else 128
weights = torch.randn(size, size, device=device)
is_last = torch.zeros(1, device=device)
steps = 0
while True:
    started = time.perf_counter()
    gradient = weights @ weights
    dist.all_reduce(gradient)
    is_last.fill_(float(rank == 0 and os.path.exists(sys.argv[2])))
    dist.all_reduce(is_last)
    value = is_last.item()
    steps += 1
    if rank == 0:
        print(f"step {time.monotonic()} {time.perf_counter() - started}", flush=True)
    if value:
        break
dist.barrier()
dist.destroy_process_group()
print(f"rank {rank} has ended after {steps} steps", flush=True)
"""
_START_SECONDS: Final = 60.0
_SETTLE_SECONDS: Final = 3.0
_BLOCK_SECONDS: Final = 8.0
_ERROR_SECONDS: Final = 0.05
_END_SECONDS: Final = 30.0


class Polls(NamedTuple):
    """Questions in a row.

    Attributes:
        started: Monotonic seconds.
        ended: Monotonic seconds.
        durations: Seconds of each answered question.
        errors: Why the others failed.
        reports: Number of reports with both ranks.
    """

    started: float
    ended: float
    durations: tuple[float, ...]
    errors: tuple[str, ...]
    reports: int


class Job:
    """Two ranks that train until a file exists.

    Args:
        folder: For its files.
        backend: ``nccl`` or ``gloo``.
        address: ``NCCL_RAS_ADDR``.
    """

    def __init__(self, folder: Path, backend: str, address: str) -> None:
        script, self._end = folder / "train.py", folder / "end"
        script.write_text(_PROGRAM)
        python = os.environ.get("GPUMON_TEST_PYTHON", sys.executable)
        options = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
        self.lines: list[str] = []
        self.steps: list[tuple[float, float]] = []
        self.process = subprocess.Popen(
            [python, *options, str(script), backend, str(self._end)],
            env={**os.environ, "NCCL_RAS_ADDR": address, "GPUMON_PROBE": "0", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def end(self) -> int | None:
        """Let it end; returns its exit code, or None if it does not end."""
        self._end.touch()
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(_END_SECONDS)
        return None

    def close(self) -> None:
        """Kill what is left of it."""
        for pid in tree(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(20)
        self._reader.join(5)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            words = line.split()
            if words[:1] == ["step"] and len(words) == 3:
                self.steps.append((float(words[1]), float(words[2])))
            else:
                self.lines.append(line.rstrip())


def poll(address: str, count: int, seconds: float) -> Polls:
    """Ask as fast as possible.

    Args:
        address: Of the service.
        count: Number of questions at most.
        seconds: How long at most.
    """
    started = time.monotonic()
    durations: list[float] = []
    errors: list[str] = []
    reports = 0
    while len(durations) + len(errors) < count and time.monotonic() - started < seconds:
        start = time.monotonic()
        try:
            report = read_report(address)
            durations.append(time.monotonic() - start)
            reports += any(len(communicator.ranks) == 2 for communicator in report.communicators)
        except RasError as error:
            errors.append(str(error.problem))
            time.sleep(_ERROR_SECONDS)
    return Polls(started, time.monotonic(), tuple(durations), tuple(errors), reports)


def step_times(steps: Sequence[tuple[float, float]], blocks: Sequence[tuple[float, float]]) -> list[float]:
    """The durations of the steps in some blocks of time."""
    return [seconds for at, seconds in steps if any(start + seconds <= at <= ended for start, ended in blocks)]


def main() -> int:
    """Run it; returns 1 if something happened to the job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--polls", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=100.0, help="in all, with the blocks without questions")
    parser.add_argument("--cpu", action="store_true", help="gloo and a stand-in for the service")
    options = parser.parse_args()
    service = FakeService(report_json([FakeRank(0, 1), FakeRank(1, 2)]))
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(service) if options.cpu else nullcontext(f"127.0.0.1:{free_port()}") as address,
    ):
        job = Job(Path(folder), "gloo" if options.cpu else "nccl", address)
        try:
            return _measure(job, address, options.polls, options.seconds)
        finally:
            job.close()


def _measure(job: Job, address: str, count: int, seconds: float) -> int:
    started = time.monotonic()
    while not job.steps and time.monotonic() - started < _START_SECONDS and job.process.poll() is None:
        time.sleep(0.1)
    if not job.steps:
        print("\n".join(["The job has not made a step:", *job.lines]))
        return 1
    time.sleep(_SETTLE_SECONDS)
    quiet: list[tuple[float, float]] = []
    asked: list[Polls] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end and job.process.poll() is None:
        start = time.monotonic()
        time.sleep(_BLOCK_SECONDS / 4 if asked else _BLOCK_SECONDS)
        quiet.append((start, time.monotonic()))
        left = count - sum(len(polls.durations) + len(polls.errors) for polls in asked)
        if left <= 0:
            break
        asked.append(poll(address, left, min(_BLOCK_SECONDS, max(0.1, end - time.monotonic()))))
    code = job.end()
    durations = [seconds for polls in asked for seconds in polls.durations]
    errors = [error for polls in asked for error in polls.errors]
    without = step_times(job.steps, quiet)
    during = step_times(job.steps, [(polls.started, polls.ended) for polls in asked])
    complete = sum(polls.reports for polls in asked)
    print(f"{len(durations)} questions answered, {len(errors)} failed, {complete} with both ranks")
    if durations:
        print(f"a question: median {1e3 * median(durations):.2f} ms, longest {1e3 * max(durations):.1f} ms")
    for error, number in sorted({error: errors.count(error) for error in errors}.items()):
        print(f"  {number} x {error}")
    for label, times in (("without", without), ("with", during)):
        if times:
            times.sort()
            middle, high = 1e3 * median(times), 1e3 * times[int(0.99 * (len(times) - 1))]
            print(f"step {label:8} questions: median {middle:.3f} ms, 99 % {high:.3f} ms, {len(times)} steps")
    if without and during:
        print(f"step time with / without: {median(during) / median(without):.4f}")
    print(f"the job ended with {code}: {'; '.join(job.lines[-4:])}")
    return 0 if code == 0 and durations and not errors else 1


if __name__ == "__main__":
    sys.exit(main())
