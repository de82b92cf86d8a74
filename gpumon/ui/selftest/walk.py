"""A pilot on its way over the app: what every check of the headless test mode works with."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from textual.pilot import Pilot
from textual.screen import Screen

from gpumon.core.model import Frame
from gpumon.diagnosis.checks import Check, FailedError, SkippedError, Status
from gpumon.streams.base import Stream
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.widgets.line_table import LineTable

ScreenT = TypeVar("ScreenT", bound=Screen[Any])

_POLL_SECONDS = 0.1


class Walk:
    """The way over all screens.

    Args:
        app: The app.
        stream: Where its frames come from.
        size: Columns and rows.
        pictures: Folder in which a picture of each screen is saved, or None.

    Attributes:
        checks: Those that were made.
        pilot: Presses the keys; there from `begun` on.
    """

    pilot: Pilot[None]

    def __init__(self, app: GpumonApp, stream: Stream, size: tuple[int, int], pictures: Path | None) -> None:
        self.app = app
        self.stream = stream
        self.size = size
        self.checks: list[Check] = []
        self._pictures = pictures

    @asynccontextmanager
    async def begun(self) -> AsyncIterator[None]:
        """Runs the app meanwhile."""
        async with self.app.run_test(size=self.size) as self.pilot:
            yield

    async def check(self, name: str, step: "Step") -> None:
        """Makes a check, and keeps how it ended."""
        try:
            self.checks.append(Check(name, Status.OK, await step(self)))
        except FailedError as error:
            self.checks.append(Check(name, Status.FAIL, str(error)))
        except SkippedError as error:
            self.checks.append(Check(name, Status.SKIP, str(error)))

    @property
    def frame(self) -> Frame:
        """The latest one."""
        assert self.app.store.frame is not None
        return self.app.store.frame

    def expect(self, kind: type[ScreenT]) -> ScreenT:
        """The screen on top.

        Raises:
            FailedError: It is another one.
        """
        screen = self.app.screen
        if not isinstance(screen, kind):
            raise FailedError(f"{type(screen).__name__} is on top instead of {kind.__name__}")
        return screen

    def table(self, name: str) -> LineTable:
        """A table of the overview."""
        return self.expect(OverviewScreen).query_one(f"#{name}", LineTable)

    @asynccontextmanager
    async def opened(self, key: str, kind: type[ScreenT], name: str) -> AsyncIterator[ScreenT]:
        """Opens a screen by its key, saves its picture, and closes it again."""
        await self.pilot.press(key)
        await self.save(name)
        screen = self.expect(kind)
        try:
            yield screen
        finally:
            await self.pilot.press("escape")
            await self.pilot.pause(0.05)

    async def wait(self, condition: Callable[[], bool], seconds: float) -> None:
        """Waits until it holds, no longer than so many seconds."""
        until = time.monotonic() + seconds
        while not condition() and time.monotonic() < until:
            await self.pilot.pause(_POLL_SECONDS)

    async def save(self, name: str) -> None:
        """Saves a picture, if pictures are wanted."""
        await self.pilot.pause(0.2)
        if self._pictures is not None:
            (self._pictures / f"{name}.svg").write_text(self.app.export_screenshot(), encoding="utf-8")


Step = Callable[[Walk], Awaitable[str]]
"""A check; returns what it found, raises `FailedError` or `SkippedError`."""
