"""When the screen on top is drawn: with new frames, new values of probes, and while values grow old."""

import time
from collections.abc import Mapping
from typing import Final

from gpumon.core.heap import ReleaseSchedule, release_unused
from gpumon.session.app_session import AppSession, Demand
from gpumon.ui import terminal
from gpumon.ui.base_app import BaseApp
from gpumon.ui.messages import FramesArrived, ProbesChanged, ViewStateRequested
from gpumon.ui.navigation import Navigation
from gpumon.ui.screens.base import ViewScreen

_SILENCE_TICK_SECONDS: Final = 0.5
_PROBES_DELAY_SECONDS: Final = 0.3
"""gpumon starts to search for probes this long after the first frame was drawn."""


class Drawing:
    """Lets the screen on top draw the state of the session.

    Args:
        app: Has the screens.
        session: What they show.
        navigation: Which screens are open.
        tab_keys: The key of each tab by its name.
    """

    def __init__(self, app: BaseApp, session: AppSession, navigation: Navigation, tab_keys: Mapping[str, str]) -> None:
        self._app = app
        self._session = session
        self._navigation = navigation
        self._tab_keys = tab_keys
        self._are_probes_due = False
        self._release = ReleaseSchedule(time.monotonic())

    def start(self) -> None:
        """Draw from now on, also while no frame arrives."""
        self._app.set_interval(_SILENCE_TICK_SECONDS, self.check_silence)
        self._app.screen_change_signal.subscribe(self._app, lambda _: self._release.note_closed(time.monotonic()))

    def drain_frames(self, _: FramesArrived) -> None:
        """Apply every frame that has arrived, then draw once."""
        session = self._session
        self._drain()
        if session.shown.seekable is not None or not session.shown.is_paused:
            self.draw()
        if not self._are_probes_due and session.home.is_this_host and session.home.store.frame is not None:
            self._are_probes_due = True
            self._app.set_timer(_PROBES_DELAY_SECONDS, session.probes.start)

    def redraw(self, _: ViewStateRequested | None = None) -> None:
        """Draw for a screen that needs it, also while the screen is paused."""
        self._drain()
        self.draw()

    def _drain(self) -> None:
        """Apply every frame that has arrived; another GPU brings keys to go to it."""
        had_several_devices = self._navigation.has_several_devices
        self._session.drain_frames()
        if self._navigation.has_several_devices != had_several_devices:
            self._app.refresh_bindings()

    def drain_probes(self, _: ProbesChanged) -> None:
        """Apply the probes' messages; statistics are drawn with the next frame, so that both are of one moment."""
        if self._session.probes.drain():
            self.draw()

    def draw(self) -> None:
        """Let the screen on top draw."""
        app, session = self._app, self._session
        demands = [screen.demand for screen in app.screen_stack if isinstance(screen, ViewScreen)]
        if session.shows_host and not self._navigation.overview.is_of_fleet:
            session.close_guest()  # the user has left the host
            app.refresh_bindings()
        session.set_demand(Demand.of_all(demands))
        if app.is_running and isinstance(app.screen, ViewScreen) and app.screen.is_mounted:
            state = session.view_state(terminal.sent_bytes(app))
            if state is not None:
                app.screen.draw(state, self._tab_keys)

    def check_silence(self) -> None:
        """Draw while values grow old: no frame rings a bell for that. Release the memory of closed screens."""
        if self._session.shown.silence_seconds:
            self.draw()
        if self._release.is_due(time.monotonic()):
            release_unused()
