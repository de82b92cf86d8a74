"""The app: keys and wiring. It takes frames from feeds and lets the screen on top draw; it holds no figures itself."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Final

from textual import on
from textual.app import SystemCommand
from textual.binding import BindingType
from textual.screen import Screen

from gpumon.core.durations import HISTORY_SECONDS
from gpumon.core.exits import CommandError
from gpumon.core.store import Store
from gpumon.diagnosis.health import DEFAULTS, Thresholds
from gpumon.streams.base import Seekable, Stream
from gpumon.streams.replay import DEMO_TITLE, open_demo
from gpumon.ui.commands import APP_BINDINGS, applies, system_commands
from gpumon.ui.doors import Doors
from gpumon.ui.feed import Feed
from gpumon.ui.messages import FramesWaiting, JobsHaveNews, SceneWanted
from gpumon.ui.screens.cost import count_calls
from gpumon.ui.screens.device import look_at
from gpumon.ui.screens.drawn import DrawnScreen
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.source import change_pace, seek_by
from gpumon.ui.workshop import Workshop

SEEK_SECONDS: Final = 10.0
_SILENCE_TICK_SECONDS: Final = 0.5
_NOTICE_SECONDS: Final = 10.0


class GpumonApp(Doors):
    """Draws what a stream brings.

    Args:
        stream: Where frames come from; started by the caller.
        theme: A key of `THEMES`.
        history_seconds: How much is remembered of every figure.
        notice: What is to be told at the beginning.
        thresholds: From which values on a figure deserves attention.
    """

    TITLE = "gpumon"
    CSS_PATH = Path(__file__).with_name("gpumon.tcss")
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [*APP_BINDINGS]

    def __init__(
        self,
        stream: Stream,
        theme: str = "dark",
        history_seconds: float = HISTORY_SECONDS,
        *,
        notice: str = "",
        thresholds: Thresholds = DEFAULTS,
    ) -> None:
        super().__init__(theme)
        self._history_seconds = history_seconds
        self._notice = notice
        self._thresholds = thresholds
        self._home = Feed(stream, history_seconds, thresholds)
        self._demo: Feed | None = None
        self.workshop = Workshop(self, self._home, self.draw)
        self.probes = self.board_of(self._home)

    @property
    def feed(self) -> Feed:
        """What is shown: the demo while it is open, else what gpumon was started with."""
        return self._demo or self._home

    @property
    def stream(self) -> Stream:
        """Its stream."""
        return self.feed.stream

    @property
    def store(self) -> Store:
        """Its store."""
        return self.feed.store

    def on_mount(self) -> None:
        """Opens the overview and answers the stream's bell."""
        self.push_screen(OverviewScreen())
        if self._notice:
            self.notify(self._notice, severity="warning", timeout=_NOTICE_SECONDS, markup=False)
        self.set_interval(_SILENCE_TICK_SECONDS, self.notice_silence)
        self.stream.inbox.on_arrival(self._ring)

    @on(FramesWaiting)
    def take_frames(self) -> None:
        """Takes in every frame that waits, then draws once."""
        self._take()
        if isinstance(self.stream, Seekable) or not self.feed.paused:
            self.draw()

    @on(SceneWanted)
    def draw_anew(self) -> None:
        """Draws for a screen that needs it, paused or not."""
        self._take()
        self.draw()

    @on(JobsHaveNews)
    def take_job_news(self) -> None:
        """Takes in what the workloads tell."""
        self.workshop.take_soon()

    def draw(self) -> None:
        """Lets the screen on top draw."""
        look_at(self.stream, self.screen_stack)
        count_calls(self.stream, self.screen_stack)
        if self.is_running and isinstance(self.screen, DrawnScreen) and self.screen.is_mounted:
            scene = self.feed.scene()
            if scene is not None:
                self.screen.show(scene._replace(workloads_running=len(self.workshop.board.running)))

    def notice_silence(self) -> None:
        """Lets the screen tell that values are getting old: no frame rings a bell for that."""
        if self.feed.silence_seconds:
            self.draw()

    def action_pause(self) -> None:
        self.feed.toggle_pause()
        self.probes.hold(self.feed.paused)
        self.draw()

    def action_faster(self) -> None:
        change_pace(self.stream, 1)
        self.draw()

    def action_slower(self) -> None:
        change_pace(self.stream, -1)
        self.draw()

    def action_rewind(self) -> None:
        seek_by(self.stream, -SEEK_SECONDS)

    def action_forward(self) -> None:
        seek_by(self.stream, SEEK_SECONDS)

    def action_demo(self) -> None:
        if self._demo is not None:
            self._demo.stream.close()
            self._demo = None
            self._home.unhide()
        else:
            try:
                recording = open_demo()
            except CommandError as error:
                self.notify(str(error), severity="error", markup=False)
                return
            recording.start()
            self._home.hide()
            self._demo = Feed(recording, self._history_seconds, self._thresholds)
            recording.inbox.on_arrival(self._ring)
        self.probes.hold(self.feed.paused)
        self.refresh_bindings()
        self.draw_anew()

    async def action_quit(self) -> None:
        """Leaves at once; the collector is told meanwhile, not waited for."""
        threading.Thread(target=self.close_streams, name="gpumon-close", daemon=True).start()
        self.exit()

    def close_streams(self) -> None:
        """Closes every stream that was opened, and stops every workload."""
        self.workshop.close()
        self.probes.close()
        for feed in (self.feed, self._home):
            feed.stream.close()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hides the keys that the stream or the screen has no use for."""
        is_demo_of_demo = action == "demo" and self._home.stream.title == DEMO_TITLE
        if is_demo_of_demo or not applies(action, self.stream, self.screen):
            return False
        return super().check_action(action, parameters)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: gpumon's own actions, then Textual's."""
        yield from system_commands(screen, super().get_system_commands(screen))

    def _ring(self) -> None:
        self.post_message(FramesWaiting())

    def _take(self) -> None:
        self._home.take()
        if self._demo is not None:
            self._demo.take()
