"""What a tick of the Device screen costs: ``python -m tests.perf.tick [--ticks N] [--size 160x50] [--still]``.

The real app without a terminal, on the bundled recording of eight GPUs, turned into bytes as for a terminal. Of every
tick it takes the processor's time: that of drawing, in which lines are made and compared, and that of the whole
process, in which the frame's text is decoded, taken in, drawn and rendered. With columns of 2 s the charts move at
every second tick, with columns of 1 s at every one. With ``--still`` nothing but the newest column changes.
"""

import argparse
import asyncio
import gc
import gzip
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import count, cycle
from typing import Final, NamedTuple

from gpumon.core.frames import decode
from gpumon.streams.replay import demo_path
from gpumon.ui.app import GpumonApp
from gpumon.ui.scene import Scene
from gpumon.ui.screens.device import DeviceScreen
from tests.ui.fakes import FakeLive

HISTORY_TICKS: Final = 600
KEYS: Final = {2: (), 1: ("z",)}
"""What to press for columns of so many seconds."""
_CLOCK: Final = re.compile(rb'"monotonic_seconds":[\d.]+')
_BEGAN: Final = 1000
_SETTLE_SECONDS: Final = 0.08


class Tick(NamedTuple):
    """What one tick cost.

    Attributes:
        drawing: Milliseconds of the processor in the screen's drawing.
        whole: Milliseconds of the processor in all.
        sent_bytes: What a terminal would have received.
    """

    drawing: float
    whole: float
    sent_bytes: int


class RenderingApp(GpumonApp):
    """Renders as for a terminal, though there is none."""

    drawing_seconds = 0.0
    sent_bytes = 0

    @property
    def is_headless(self) -> bool:
        """Asked by Textual before it turns what it has drawn into bytes."""
        return False

    def observe(self, screen: DeviceScreen) -> None:
        """Takes the time of a screen's drawing from now on, and counts what is sent."""
        show = screen.show

        def timed(scene: Scene) -> None:
            began = time.thread_time()
            show(scene)
            self.drawing_seconds += time.thread_time() - began

        def counted(data: str) -> None:
            self.sent_bytes += len(data.encode())

        assert self._driver is not None
        screen.show = timed  # type: ignore[method-assign]
        self._driver.write = counted  # type: ignore[method-assign]


def recorded(still: bool) -> Iterator[bytes]:
    """The lines of the bundled recording over and over, a second apart; after a history, always the same one."""
    with gzip.open(demo_path()) as file:
        lines = cycle(file.readlines())
    for tick in range(HISTORY_TICKS):
        yield _at(tick, next(lines))
    last = next(lines)
    for tick in count(HISTORY_TICKS):
        yield _at(tick, last if still else next(lines))


def _at(tick: int, line: bytes) -> bytes:
    return _CLOCK.sub(b'"monotonic_seconds":%d' % (_BEGAN + tick), line, count=1)


async def measured(size: tuple[int, int], column_seconds: int, ticks: int, still: bool) -> list[Tick]:
    """Opens the screen and lets it tick."""
    lines = recorded(still)
    stream = FakeLive()
    for _ in range(HISTORY_TICKS):
        stream.inbox.put(decode(next(lines)))
    app = RenderingApp(stream)
    async with app.run_test(size=size) as pilot:
        await pilot.press("enter", *KEYS[column_seconds])
        await pilot.pause(0.5)
        assert isinstance(app.screen, DeviceScreen)
        app.observe(app.screen)
        idle = await _cpu_of_idling()
        gc.collect()
        return [await _tick(app, stream, next(lines), idle) for _ in range(ticks)]


async def _cpu_of_idling() -> float:
    """What the waiting after a tick costs by itself."""
    began = time.process_time()
    for _ in range(10):
        await asyncio.sleep(_SETTLE_SECONDS)
    return (time.process_time() - began) / 10


async def _tick(app: RenderingApp, stream: FakeLive, line: bytes, idle: float) -> Tick:
    app.drawing_seconds, app.sent_bytes = 0.0, 0
    began = time.process_time()
    stream.inbox.put(decode(line))
    await asyncio.sleep(_SETTLE_SECONDS)
    whole = time.process_time() - began - idle
    return Tick(1e3 * app.drawing_seconds, 1e3 * whole, app.sent_bytes)


def _report(name: str, values: Sequence[float]) -> str:
    return f"{name} {statistics.median(values):8.2f} {statistics.quantiles(values, n=20)[-1]:8.2f}"


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ticks", type=int, default=100, help="ticks of each measurement")
    parser.add_argument("--size", default="160x50", help="COLUMNSxROWS")
    parser.add_argument("--still", action="store_true", help="figures that do not change")
    given = parser.parse_args()
    columns, _, rows = given.size.partition("x")
    for column_seconds in KEYS:
        ticks = asyncio.run(measured((int(columns), int(rows)), column_seconds, given.ticks, given.still))
        print(f"columns of {column_seconds} s            median     95th")
        print(_report("  drawing, ms        ", [tick.drawing for tick in ticks]))
        print(_report("  whole process, ms  ", [tick.whole for tick in ticks]))
        print(_report("  bytes              ", [float(tick.sent_bytes) for tick in ticks]))


if __name__ == "__main__":
    main()
