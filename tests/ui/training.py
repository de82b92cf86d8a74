"""The app on a host where a training job with a probe runs."""

from typing import Any

from textual.pilot import Pilot

from gpumon.ui.screens.memory import MemoryScreen
from gpumon.ui.widgets.line_table import LineTable
from tests import builders
from tests.ui.fakes import FakeLive, app_on
from tests.ui.probing import BEGAN, GIB, PID, FakeWatcher, gpu, moment, probe, statistics

SUMMARY = "|====|\n|  PyTorch CUDA memory summary, device ID 0  |\n|====|"
SECONDS = 300


class Training:
    """A host where a training job with a probe runs.

    Args:
        watcher: Delivers the probe's messages.
        theme: The app's theme.
    """

    def __init__(self, watcher: FakeWatcher, theme: str = "dark") -> None:
        self.watcher = watcher
        self.stream = FakeLive()
        self.app = app_on(self.stream, theme)
        self.seconds = 0.0
        self.app.session.probes.clock = lambda: BEGAN + self.seconds
        self.app.session.probes.is_own = lambda _: True

    def go(self, *seconds: float, **changes: Any) -> None:  # noqa: ANN401
        """Seconds pass, in which the allocator takes more and more, and is short of memory twice."""
        for second in seconds:
            self.seconds = second
            wave = abs(second % 80 - 40) / 40
            reserved = (30 + int(second) // 10 if second < 150 else 60) * GIB
            allocated = int(reserved * (0.5 + 0.35 * wave))
            values = {
                "allocated_bytes": allocated,
                "active_bytes": allocated + GIB // 2,
                "reserved_bytes": reserved,
                "inactive_split_bytes": (reserved - allocated) // 3,
                "allocated_peak_bytes": (25 + min(int(second), 170) // 8) * GIB,
                "alloc_retries_count": (second >= 150) + (second >= 210),
                "ooms_count": int(second >= 250),
            }
            self.watcher.inbox.put(
                probe(PID, statistics(**values), at=BEGAN + second, process={"rank": 0, "world_size": 2}, **changes)
            )
            self.app.session.probes.drain()
            self.stream.put(moment(second, gpu(reserved + GIB), builders.device(1)))
            self.app.session.shown.drain()

    async def open(self, pilot: Pilot[Any], seconds: int = 20, **changes: Any) -> MemoryScreen:  # noqa: ANN401
        """The first frame comes, probes are looked for, time passes, and the key is pressed."""
        self.stream.put(moment(0.0))
        await pilot.pause()
        self.app.session.probes.start()
        self.go(*range(1, seconds), **changes)
        return await self.press(pilot)

    async def press(self, pilot: Pilot[Any], key: str = "m") -> MemoryScreen:
        await pilot.press(key)
        await pilot.pause()
        assert isinstance(self.app.screen, MemoryScreen)
        return self.app.screen


def rows_of(screen: MemoryScreen) -> list[str]:
    return ["".join(span.text for span in row.line) for row in screen.query_one("#parts", LineTable).rows]


def put_cursor(screen: MemoryScreen, words: str) -> None:
    places = [place for place, row in enumerate(rows_of(screen)) if words in row]
    screen.query_one("#parts", LineTable).cursor = places[0]
