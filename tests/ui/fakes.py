"""Streams without threads or clocks for the app under test: a test puts every frame in by hand."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from textual.app import App
from textual.geometry import Region
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widget import Widget

from gpumon.core.frames import decode, encode
from gpumon.core.model import Frame
from gpumon.core.problems import Problem
from gpumon.session.app_session import AppSession, Bells
from gpumon.streams.base import FrameInbox, Position
from gpumon.ui.app import GpumonApp
from tests import builders
from tests.ui.probing import FakeWatcher


class FakeStream:
    """A stream that does nothing by itself."""

    def __init__(self, title: str = "live") -> None:
        self.title = title
        self.inbox = FrameInbox()
        self.problem: Problem | None = None
        self.started = 0
        self.closed = 0

    def start(self) -> None:
        self.started += 1

    def close(self) -> None:
        self.closed += 1

    def put(self, *frames: Frame) -> None:
        """Lets frames arrive as they do from outside: through the codec, which makes text safe."""
        for frame in frames:
            self.inbox.put(decode(encode(frame)))


class FakeLive(FakeStream):
    """A stream with an interval."""

    def __init__(self, title: str = "live") -> None:
        super().__init__(title)
        self.interval = 1.0
        self.intervals: list[float] = []

    def set_interval(self, seconds: float) -> None:
        self.interval = seconds
        self.intervals.append(seconds)


class FakeRecording(FakeStream):
    """A stream that can be moved in time."""

    def __init__(self, title: str = "demo.jsonl") -> None:
        super().__init__(title)
        self.paused = False
        self.speed = 1.0
        self.seconds = 65.0
        self.ended = False

    @property
    def position(self) -> Position:
        return Position(self.seconds, 300.0, self.speed, self.paused, self.ended)

    def set_paused(self, paused: bool) -> None:
        self.paused = paused

    def set_speed(self, speed: float) -> None:
        self.speed = speed

    def seek(self, seconds: float) -> None:
        self.seconds = seconds


def app_on(stream: FakeStream, theme: str = "dark") -> GpumonApp:
    """The app on a stream that the command line has started."""
    stream.start()
    return GpumonApp(stream, theme=theme)


def screen_lines(app: App[Any]) -> list[str]:
    """What the screen on top shows, without colors."""
    return [strip.text for strip in app.screen._compositor.render_strips()]


def screen_text(app: App[Any]) -> str:
    """The screen on top as one text."""
    return "\n".join(screen_lines(app))


async def until(pilot: Pilot[Any], holds: Callable[[], bool], what: str = "") -> None:
    """Waits for something to hold, at first impatiently: ``holds`` often draws the whole screen."""
    deadline, delay = time.monotonic() + 60, 0.02
    while not holds():
        assert time.monotonic() < deadline, f"{what}\n{screen_text(pilot.app)}"
        await asyncio.sleep(delay)  # a pause of the pilot asks every widget
        delay = min(1.3 * delay, 0.2)


async def seen(pilot: Pilot[Any], text: str) -> None:
    """Waits for a text on the screen."""
    await until(pilot, lambda: text in screen_text(pilot.app), text)


class Refreshes:
    """Counts what a widget asks to be drawn again.

    Args:
        widget: The widget to spy on.
    """

    def __init__(self, widget: Widget) -> None:
        self.regions: list[Region] = []
        """Parts; an empty one stands for all of it."""
        original = widget.refresh

        def refresh(*regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Widget:
            self.regions += regions or [Region()]
            return original(*regions, repaint=repaint, layout=layout, recompose=recompose)

        widget.refresh = refresh  # type: ignore[method-assign]

    @property
    def rows(self) -> list[int]:
        """Rows of the parts, in their order."""
        return [region.y for region in self.regions]


def later(frame: Frame, seconds: float, **changes: Any) -> Frame:  # noqa: ANN401
    """The same machine a while after."""
    return builders.frame(
        devices=frame.devices, monotonic_seconds=frame.monotonic_seconds + seconds, host=frame.host, **changes
    )


def busy(percent: float, seconds: float = 0.0) -> Frame:
    return builders.frame(
        devices=(builders.device(0, readings={"utilization_gpu_percent": percent}),), monotonic_seconds=100.0 + seconds
    )


class FakeStack:
    """The screens and notices that the parts of the app use, without an app.

    Args:
        screens: The screens, the lowest first; none of them is mounted.
    """

    def __init__(self, *screens: Screen[Any]) -> None:
        self.screen_stack: list[Screen[Any]] = [*screens]
        self.notices: list[str] = []
        self._callbacks: dict[Screen[Any], Any] = {}

    @property
    def screen(self) -> Screen[Any]:
        return self.screen_stack[-1]

    def push_screen(self, screen: Screen[Any], callback: Any = None) -> None:  # noqa: ANN401
        self.screen_stack.append(screen)
        self._callbacks[screen] = callback

    def pop_screen(self) -> None:
        self.screen_stack.pop()

    def switch_screen(self, screen: Screen[Any]) -> None:
        self.screen_stack[-1] = screen

    def warn(self, text: object) -> None:
        self.notices.append(str(text))

    def say(self, text: str) -> None:
        self.notices.append(text)

    def notify(self, message: str, **_: Any) -> None:  # noqa: ANN401
        self.notices.append(message)

    def answer(self, result: object) -> None:
        """Closes the dialog on top with a result."""
        self._callbacks[self.screen_stack.pop()](result)

    @property
    def kinds(self) -> list[type[Screen[Any]]]:
        return [type(screen) for screen in self.screen_stack]


def session_on(stream: FakeStream, *frames: Frame, **options: Any) -> AppSession:  # noqa: ANN401
    """A session that has drained frames."""
    bells = Bells(*[lambda: None] * 3)
    session = AppSession(stream, bells, lambda call: call(), FakeWatcher, **options)
    stream.put(*frames)
    session.drain_frames()
    return session
