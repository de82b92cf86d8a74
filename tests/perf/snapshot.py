"""Measures the cost of opening a large snapshot: ``python -m tests.perf.snapshot FILE``.

Opens the file as the screen does, but without a terminal. Prints the time to the first screen and to the summary, and
the peak memory of the reading child and of gpumon itself. ``python -m tests.perf.snapshot_file FILE 1000`` creates a
file of a gigabyte. With ``--pickle`` the cost of Python's own pickle is measured too, in a separate process.
"""

import asyncio
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

_BEGUN: Final = time.perf_counter()
_PLAIN: Final = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"
_LOOK_SECONDS: Final = 0.02


def main() -> None:
    """Measures the file that is named."""
    path = Path(sys.argv[1])
    print(f"{path.stat().st_size / 1e6:,.0f} MB")
    first, done = asyncio.run(_opened(path))
    own = resource.getrusage(resource.RUSAGE_SELF)
    child = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"first screen after {first:.2f} s, totals after {done:.1f} s")
    print(f"most memory: reader {child.ru_maxrss >> 10} MiB, gpumon {own.ru_maxrss >> 10} MiB")
    print(f"processor time: reader {child.ru_utime + child.ru_stime:.1f} s, gpumon {own.ru_utime + own.ru_stime:.1f} s")
    if "--pickle" in sys.argv:
        _plain(path)


async def _opened(path: Path) -> tuple[float, float]:
    """Seconds from the start of this process to the first screen, and to the totals."""
    from gpumon.ui.screens.snapshot import SnapshotScreen
    from gpumon.ui.viewer_app import snapshot_app

    app = snapshot_app([path])
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.pause()
        first = time.perf_counter() - _BEGUN
        while not isinstance(app.screen, SnapshotScreen):
            await asyncio.sleep(_LOOK_SECONDS)
        await pilot.pause()
        return first, time.perf_counter() - _BEGUN


def _plain(path: Path) -> None:
    begun = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-c", _PLAIN, str(path)])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    print(f"pickle.load alone: {time.perf_counter() - begun:.1f} s, {usage.ru_maxrss >> 10} MiB")


if __name__ == "__main__":
    main()
