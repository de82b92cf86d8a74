"""What every check of the selftest uses: the app, a pilot that presses keys, and the results."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from textual.pilot import Pilot
from textual.screen import Screen

from gpumon.core.model import Frame
from gpumon.core.new_files import replace_file
from gpumon.health.checks import Check, FailedError, SkippedError, Status
from gpumon.streams.base import Stream
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.widgets.line_table import LineTable

ScreenT = TypeVar("ScreenT", bound=Screen[Any])

_POLL_SECONDS = 0.1


class Pictures(NamedTuple):
    """Pictures to save.

    Attributes:
        folder: Where.
        names: Of which screens; of all of them if empty.
    """

    folder: Path
    names: tuple[str, ...] = ()


class Walk:
    """One run of the selftest.

    Args:
        app: The app.
        stream: Source of its frames.
        size: Columns and rows.
        pictures: Where to save pictures of which screens, or None.

    Attributes:
        checks: The results.
        pilot: Presses keys; available while `running`.
    """

    pilot: Pilot[None]

    def __init__(self, app: GpumonApp, stream: Stream, size: tuple[int, int], pictures: Pictures | None) -> None:
        self.app = app
        self.stream = stream
        self.size = size
        self.checks: list[Check] = []
        self._pictures = pictures

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the app."""
        async with self.app.run_test(size=self.size) as self.pilot:
            yield

    async def check(self, name: str, step: "Step") -> None:
        """Run a step and keep its result."""
        try:
            self.checks.append(Check(name, Status.OK, await step(self)))
        except FailedError as error:
            self.checks.append(Check(name, Status.FAIL, str(error)))
        except SkippedError as error:
            self.checks.append(Check(name, Status.SKIP, str(error)))

    @property
    def frame(self) -> Frame:
        """The newest frame."""
        assert self.app.session.store.frame is not None
        return self.app.session.store.frame

    def expect(self, kind: type[ScreenT]) -> ScreenT:
        """The screen on top.

        Raises:
            FailedError: The screen on top is another one.
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
        """Open a screen with its key, save its picture, and close it at the end."""
        await self.pilot.press(key)
        await self.save(name)
        screen = self.expect(kind)
        try:
            yield screen
        finally:
            await self.pilot.press("escape")
            await self.pilot.pause(0.05)

    async def wait(self, condition: Callable[[], bool], seconds: float) -> None:
        """Wait until a condition holds, at most a number of seconds."""
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            await self.pilot.pause(_POLL_SECONDS)

    async def save(self, name: str) -> None:
        """Save a picture, if there is a folder for pictures."""
        await self.pilot.pause(0.2)
        if self._pictures is not None and (not self._pictures.names or name in self._pictures.names):
            replace_file(self._pictures.folder / f"{name}.svg", self.app.picture().encode(), 0o666)


Step = Callable[[Walk], Awaitable[str]]
"""A check; returns its result in words, raises `FailedError` or `SkippedError`."""
