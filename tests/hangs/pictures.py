"""Pictures of a job that hangs: ``python -m tests.hangs.pictures FOLDER [--case NAME] [--size 120x24,...]``.

A job of a few processes with gloo runs under ``gpumon watch`` on the CPU and hangs as planted; the app shows it.
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

from gpumon.operations.training_jobs.report import TrainingJobState
from gpumon.ui.app import GpumonApp
from tests.frames import machine
from tests.hangs.cases import HANGS, Case
from tests.hangs.runner import Job, running
from tests.ui.fakes import FakeLive

_PATIENCE_SECONDS = 90.0


def main() -> None:
    """Write ``jobs.svg`` and ``job.svg``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--case", default="group_of_two", choices=[case.name for case in HANGS])
    parser.add_argument("--size", default="120x24,80x24")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    case = next(case for case in HANGS if case.name == options.case)
    with tempfile.TemporaryDirectory() as state, running(case) as (job, folder):
        os.environ.update(XDG_STATE_HOME=state, GPUMON_PROBE_DIR=str(folder / "sockets"))
        asyncio.run(_draw(case, job, options.folder, options.size.split(",")))


async def _draw(case: Case, job: Job, folder: Path, sizes: list[str]) -> None:
    stream = FakeLive()
    app = GpumonApp(stream)
    width, height = map(int, sizes[0].split("x"))
    async with app.run_test(size=(width, height)) as pilot:
        await pilot.press("4")
        end = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < end:
            stream.put(machine(0, monotonic_seconds=time.monotonic(), time_seconds=time.time()))
            await pilot.pause(0.5)
            reports = app.session.jobs.state.reports
            own = [report for report in reports if report.name in {case.name, f"{case.name}.py"}]
            if job.hung_at is not None and own and own[0].state is TrainingJobState.HANGING:
                break
        await pilot.press("home")
        for name, key in (("jobs", ""), ("job", "enter")):
            if key:
                await pilot.press(key)
            for size in sizes:
                width, height = map(int, size.split("x"))
                await pilot.resize_terminal(width, height)
                stream.put(machine(0, monotonic_seconds=time.monotonic(), time_seconds=time.time()))
                await pilot.pause(1.5)
                suffix = f"-{size}" if len(sizes) > 1 else ""
                (folder / f"{name}{suffix}.svg").write_text(app.picture())


if __name__ == "__main__":
    main()
