"""Measures the cost of the Jobs screen: ``python -m tests.perf.jobs [--ranks N] [--seconds S]``.

The ranks are processes with the environment of torchrun and a probe, which sends its statistics; they compute nothing.
The app runs without a terminal, on frames that list the ranks. CPU time is that of the process of the app.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from gpumon.core.model import Frame
from gpumon.ui.app import GpumonApp
from tests import builders
from tests.processes import start_ticks
from tests.ui.fakes import FakeLive

_GPUS: Final = 8
_SETTLE_SECONDS: Final = 8.0
_RANK: Final = "import time\nfrom gpumon import probe\nprobe.start()\ntime.sleep(3600)\n"
_SCREENS: Final = (("overview", ""), ("jobs", "4"), ("one job", "enter"))


def main() -> None:
    """Print the CPU time per second of each screen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_RUNTIME_DIR"] = os.environ["XDG_STATE_HOME"] = folder
        ranks = [_start(rank, options.ranks) for rank in range(options.ranks)]
        try:
            asyncio.run(_measure([rank.pid for rank in ranks], options.seconds))
        finally:
            for rank in ranks:
                rank.kill()
            for rank in ranks:
                rank.wait()


def _start(rank: int, size: int) -> "subprocess.Popen[bytes]":
    environment = {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "perf",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    return subprocess.Popen([sys.executable, "-c", _RANK], env=environment)


def _frame(pids: list[int], ticks: dict[int, int], number: int) -> Frame:
    """A frame in which the ranks share the GPUs."""
    devices = tuple(
        builders.device(
            index,
            processes=tuple(
                builders.process(pid, start_ticks=ticks[pid], memory_bytes=1 << 30) for pid in pids[index::_GPUS]
            ),
            readings={"utilization_gpu_percent": float(50 + (number + index) % 40)},
        )
        for index in range(_GPUS)
    )
    return builders.frame(devices=devices, monotonic_seconds=100.0 + number, time_seconds=1e9 + number)


async def _measure(pids: list[int], seconds: float) -> None:
    ticks = {pid: start_ticks(pid) for pid in pids}
    stream = FakeLive()
    stream.start()
    app = GpumonApp(stream)
    number = 0
    async with app.run_test(size=(160, 50)) as pilot:
        for name, key in _SCREENS:
            if key:
                await pilot.press(key)
            begun, used, parts = 0.0, 0.0, {}
            end = time.monotonic() + _SETTLE_SECONDS + seconds
            while time.monotonic() < end:
                if not begun and time.monotonic() >= end - seconds:
                    begun, used, parts = time.monotonic(), time.process_time(), _threads()
                stream.put(_frame(pids, ticks, number))
                number += 1
                await asyncio.sleep(1.0)
            wall = time.monotonic() - begun
            share = (time.process_time() - used) / wall
            text = ", ".join(
                f"{thread} {100 * (value - parts.get(thread, 0.0)) / wall:.2f}" for thread, value in _threads().items()
            )
            reports = app.session.jobs.state.reports
            ranks = sum(report.running_ranks for report in reports)
            print(f"{name:<10} {100 * share:5.2f} % of a core; {len(reports)} jobs, {ranks} ranks ({text})", flush=True)


def _threads() -> dict[str, float]:
    """CPU seconds of the threads that run now, by name."""
    seconds = {}
    for thread in threading.enumerate():
        schedule = Path(f"/proc/self/task/{thread.native_id}/schedstat")
        if schedule.exists():
            seconds[thread.name] = int(schedule.read_text().split()[0]) / 1e9
    return seconds


if __name__ == "__main__":
    main()
