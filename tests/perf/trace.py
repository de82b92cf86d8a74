"""Measures the cost of opening a large trace: ``python -m tests.perf.trace FILE``.

Opens the file as the screen does, but without a terminal. Prints the time to the first screen, to the first counts and
to the account, the time of a key on the timeline, and the peak memory of the reading child and of gpumon itself.
``python -m tests.perf.trace_file FILE 1000`` makes a file of a gigabyte.
"""

import asyncio
import resource
import sys
import time
from pathlib import Path
from typing import Final

_BEGUN: Final = time.perf_counter()
_LOOK_SECONDS: Final = 0.02
_KEYS: Final = ("x",) * 12 + ("z",) * 12 + ("right",) * 6


def main() -> None:
    """Measure the file that is named."""
    path = Path(sys.argv[1])
    print(f"{path.stat().st_size / 1e6:,.0f} MB")
    first, done, keys = asyncio.run(_opened(path))
    own = resource.getrusage(resource.RUSAGE_SELF)
    child = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"first screen after {first:.2f} s, account after {done:.1f} s")
    print(f"a key on the timeline: {sum(keys) / len(keys) * 1000:.0f} ms, at most {max(keys) * 1000:.0f} ms")
    print(f"most memory: reader {child.ru_maxrss >> 10} MiB, gpumon {own.ru_maxrss >> 10} MiB")
    print(f"CPU time: reader {child.ru_utime + child.ru_stime:.1f} s, gpumon {own.ru_utime + own.ru_stime:.1f} s")


async def _opened(path: Path) -> tuple[float, float, list[float]]:
    """Seconds from the start of this process to the first screen and to the account, and of keys on the timeline."""
    from gpumon.ui.screens.trace import TraceScreen
    from gpumon.ui.viewer_app import trace_app

    app = trace_app([path])
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.pause()
        first = time.perf_counter() - _BEGUN
        while not isinstance(app.screen, TraceScreen):
            if app.failure is not None:
                raise app.failure
            await asyncio.sleep(_LOOK_SECONDS)
        await pilot.pause()
        done = time.perf_counter() - _BEGUN
        await pilot.press("v")
        seconds = []
        for key in _KEYS:
            begun = time.perf_counter()
            await pilot.press(key)
            seconds.append(time.perf_counter() - begun)
        return first, done, seconds


if __name__ == "__main__":
    main()
