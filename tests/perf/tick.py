"""CPU time of one update of a screen: ``python -m tests.perf.tick [--ticks N] [--size 160x50] [--still] [--overview]``.

Runs the real app without a terminal on the bundled recording of eight GPUs, and renders to bytes as for a terminal. Two
times are measured per tick: drawing, in which lines are built and compared, and the complete process, which decodes,
applies, draws and renders the frame. With columns of 2 s, the charts move at every second tick; with columns of 1 s, at
every tick. With ``--still``, only the newest column changes. With ``--overview``, the overview is measured in place of
the device screen.
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
from gpumon.session.view_state import ViewState
from gpumon.streams.replay import demo_path
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.base import ViewScreen
from tests.ui.fakes import FakeLive

HISTORY_TICKS: Final = 600
DEVICE_KEYS: Final = {"device, columns of 2 s": ("enter",), "device, columns of 1 s": ("enter", "z")}
"""Keys to press, by what is measured."""
OVERVIEW_KEYS: Final[dict[str, tuple[str, ...]]] = {"overview": ()}
_CLOCK: Final = re.compile(rb'"monotonic_seconds":[\d.]+')
_START_SECONDS: Final = 1000
_SETTLE_SECONDS: Final = 0.08


class TickCost(NamedTuple):
    """Cost of one tick.

    Attributes:
        drawing: CPU time of drawing, in milliseconds.
        total: CPU time of the process, in milliseconds.
        sent_bytes: Bytes that a terminal would have received.
    """

    drawing: float
    total: float
    sent_bytes: int


class RenderingApp(GpumonApp):
    """Renders as for a terminal, without having one."""

    drawing_seconds = 0.0
    sent_bytes = 0

    @property
    def is_headless(self) -> bool:
        """Textual renders to bytes only if this is False."""
        return False

    def observe(self, screen: ViewScreen[None]) -> None:
        """Measure the drawing time of a screen from now on, and count the bytes sent."""
        show = screen.show

        def timed(state: ViewState) -> None:
            started = time.thread_time()
            show(state)
            self.drawing_seconds += time.thread_time() - started

        def counted(data: str) -> None:
            self.sent_bytes += len(data.encode())

        assert self._driver is not None
        screen.show = timed  # type: ignore[method-assign]
        self._driver.write = counted  # type: ignore[method-assign]


def recorded(still: bool) -> Iterator[bytes]:
    """Lines of the bundled recording in a loop, one second apart; with ``still``, at the end always the same line."""
    with gzip.open(demo_path()) as file:
        lines = cycle(file.readlines())
    for tick in range(HISTORY_TICKS):
        yield _at(tick, next(lines))
    last = next(lines)
    for tick in count(HISTORY_TICKS):
        yield _at(tick, last if still else next(lines))


def _at(tick: int, line: bytes) -> bytes:
    return _CLOCK.sub(b'"monotonic_seconds":%d' % (_START_SECONDS + tick), line, count=1)


async def measure(size: tuple[int, int], keys: Sequence[str], ticks: int, still: bool) -> list[TickCost]:
    """Open the screen and measure its ticks."""
    lines = recorded(still)
    stream = FakeLive()
    for _ in range(HISTORY_TICKS):
        stream.inbox.put(decode(next(lines)))
    app = RenderingApp(stream)
    async with app.run_test(size=size) as pilot:
        await pilot.press(*keys)
        await pilot.pause(0.5)
        assert isinstance(app.screen, ViewScreen)
        app.observe(app.screen)
        idle = await _idle_cpu_seconds()
        gc.collect()
        return [await _tick(app, stream, next(lines), idle) for _ in range(ticks)]


async def _idle_cpu_seconds() -> float:
    """CPU time of waiting after a tick without a frame."""
    started = time.process_time()
    for _ in range(10):
        await asyncio.sleep(_SETTLE_SECONDS)
    return (time.process_time() - started) / 10


async def _tick(app: RenderingApp, stream: FakeLive, line: bytes, idle: float) -> TickCost:
    app.drawing_seconds, app.sent_bytes = 0.0, 0
    started = time.process_time()
    stream.inbox.put(decode(line))
    await asyncio.sleep(_SETTLE_SECONDS)
    total = time.process_time() - started - idle
    return TickCost(1e3 * app.drawing_seconds, 1e3 * total, app.sent_bytes)


def _report(name: str, values: Sequence[float]) -> str:
    return f"{name} {statistics.median(values):8.2f} {statistics.quantiles(values, n=20)[-1]:8.2f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ticks", type=int, default=100, help="ticks per measurement")
    parser.add_argument("--size", default="160x50", help="COLUMNSxROWS")
    parser.add_argument("--still", action="store_true", help="use values that do not change")
    parser.add_argument("--overview", action="store_true", help="measure the overview")
    options = parser.parse_args()
    columns, _, rows = options.size.partition("x")
    for name, keys in (OVERVIEW_KEYS if options.overview else DEVICE_KEYS).items():
        ticks = asyncio.run(measure((int(columns), int(rows)), keys, options.ticks, options.still))
        print(f"{name:<22}   median     95th")
        print(_report("  drawing, ms         ", [tick.drawing for tick in ticks]))
        print(_report("  complete process, ms", [tick.total for tick in ticks]))
        print(_report("  bytes               ", [float(tick.sent_bytes) for tick in ticks]))


if __name__ == "__main__":
    main()
