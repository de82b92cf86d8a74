"""Streams without threads or clocks for the app under test: a test puts every frame in by hand."""

from typing import Any

from textual.app import App
from textual.geometry import Region
from textual.widget import Widget

from gpumon.core.frames import decode, encode
from gpumon.core.model import Frame
from gpumon.core.problems import Problem
from gpumon.streams.base import FrameInbox, Position
from gpumon.ui.app import GpumonApp
from tests import builders


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


def screen_text(app: GpumonApp) -> str:
    """The screen on top as one text."""
    return "\n".join(screen_lines(app))


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
        devices=(builders.device(0, readings={"utilization_gpu_percent": percent}),),
        monotonic_seconds=100.0 + seconds,
    )
