"""The app: keys, messages and screens. It owns the session and lets the screen on top draw its state."""

import gc
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final

from textual import events, on
from textual.binding import BindingType

from gpumon.core.heap import ReleaseSchedule, release_unused
from gpumon.core.problems import CommandError, Problem
from gpumon.core.timeline import DEFAULT_HISTORY_SECONDS
from gpumon.health.alerts import DEFAULT_THRESHOLDS, Thresholds
from gpumon.present.palette import Palette
from gpumon.present.top_line import TABS
from gpumon.session.alert_notifier import NO_NOTICES, NotifySettings
from gpumon.session.app_session import AppSession, Bells, Demand
from gpumon.session.probe_registry import Watcher
from gpumon.streams.base import Seekable, Stream
from gpumon.ui.bindings import APP_BINDINGS
from gpumon.ui.keymap import check_keymap
from gpumon.ui.messages import (
    AcknowledgeRequested,
    EmptyCacheRequested,
    FleetHostRequested,
    FleetRefreshRequested,
    FramesArrived,
    ProbeRequested,
    ProbesChanged,
    RunsChanged,
    ViewStateRequested,
)
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.screens.confirm import QuitDialog
from gpumon.ui.screens.help import key_text
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.signalling import READ_ONLY
from gpumon.ui.terminal import sent_bytes
from gpumon.ui.terminal_notice import notice_sequence
from gpumon.ui.widgets.table_view import TableView
from gpumon.ui.workload_running import WorkloadRunningApp

if TYPE_CHECKING:
    from gpumon.fleet.settings import FleetSource

SEEK_SECONDS: Final = 10.0
_SILENCE_TICK_SECONDS: Final = 0.5
_NOTICE_SECONDS: Final = 10.0
_SWITCH_SECONDS: Final = 0.001
"""How long a thread that decodes a frame keeps a key waiting: Python's 5 ms would be spent several times per key."""
_FREEZE_SECONDS: Final = 3.0
"""After the start, when the modules of the first screens are imported."""
_PROBES_DELAY_SECONDS: Final = 0.3
"""gpumon starts to search for probes this long after the first frame was drawn."""


class GpumonApp(WorkloadRunningApp):
    """Draws the frames of a stream, and everything else that belongs to a session.

    Args:
        stream: Source of the frames; started by the caller.
        theme: Name of the theme.
        history_seconds: Length of the history of every metric.
        notice: Shown at the start.
        thresholds: The values from which on a metric raises an alert.
        user_palettes: The colors of the user's themes.
        columns: The columns that the configuration names, by table.
        keymap: Keys, separated by commas, by the id or the meaning of a binding.
        notices: How to notify the user of new alerts.
        is_read_only: Whether nothing may be changed: no signals, no requests to empty a cache, no workloads.
        fleet: Where a fleet comes from, or None.
        opens_fleet: Whether the fleet is the first screen.
    """

    TITLE = "gpumon"
    CSS_PATH = Path(__file__).with_name("gpumon.tcss")
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [*APP_BINDINGS]

    def __init__(
        self,
        stream: Stream,
        theme: str = "dark",
        history_seconds: float = DEFAULT_HISTORY_SECONDS,
        *,
        notice: str = "",
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
        user_palettes: Sequence[Palette] = (),
        columns: Mapping[str, Sequence[str]] = MappingProxyType({}),
        keymap: Mapping[str, str] = MappingProxyType({}),
        notices: NotifySettings = NO_NOTICES,
        is_read_only: bool = False,
        fleet: "FleetSource | None" = None,
        opens_fleet: bool = False,
    ) -> None:
        super().__init__(theme, user_palettes)
        self._user_keymap = keymap
        self._notices = notices
        hidden = {"Workloads"} if is_read_only else set()
        hidden |= {"Fleet"} if fleet is None else set()
        self._tab_keys = {tab.name: tab.key for tab in TABS if tab.name not in hidden}
        self._opens_fleet = opens_fleet
        self._notice = notice
        bells = Bells(
            frames=lambda: self._ring(FramesArrived()),
            runs=lambda: self._ring(RunsChanged()),
            probes=lambda: self._ring(ProbesChanged()),
        )
        self.session = AppSession(
            stream,
            bells,
            self.call_later,
            self.open_watcher,
            history_seconds=history_seconds,
            thresholds=thresholds,
            columns=columns,
            notify=notices,
            show_notice=self.notify_terminal,
            report=lambda problem: self.notify(str(problem), severity="warning", markup=False),
            is_read_only=is_read_only,
            fleet=fleet,
        )
        self.session.signals.report = self.report_signal
        self.session.waits.report = self.report_true
        self.session.jobs.ring = self.report_hang
        self._are_probes_due = False
        self._release = ReleaseSchedule(time.monotonic())

    def on_mount(self) -> None:
        """Open the overview, and drain frames from now on."""
        self._apply_keymap()
        self.push_screen(OverviewScreen())
        if self._opens_fleet:
            self.action_open_screen("fleet")
        if self._notice:
            self.notify(self._notice, severity="warning", timeout=_NOTICE_SECONDS, markup=False)
        self.set_interval(_SILENCE_TICK_SECONDS, self.check_silence)
        self.screen_change_signal.subscribe(self, lambda _: self._release.note_closed(time.monotonic()))
        sys.setswitchinterval(_SWITCH_SECONDS)
        self.set_timer(_FREEZE_SECONDS, exclude_modules_from_collection)
        self.session.start()

    def open_watcher(self) -> Watcher:
        """The connection to the probes of this host."""
        from gpumon.probe.client import ProbeWatcher  # late: the first frame must not wait for it

        return ProbeWatcher()

    # Bells

    @on(FramesArrived)
    def drain_frames(self) -> None:
        """Apply every frame that has arrived, then draw once."""
        session = self.session
        had_several_devices = self.has_several_devices
        session.drain_frames()
        if self.has_several_devices != had_several_devices:
            self.refresh_bindings()
        if isinstance(session.stream, Seekable) or not session.shown.is_paused:
            self.draw()
        if not self._are_probes_due and session.home.is_this_host and session.home.store.frame is not None:
            self._are_probes_due = True
            self.set_timer(_PROBES_DELAY_SECONDS, session.probes.start)

    @on(ViewStateRequested)
    def redraw(self) -> None:
        """Draw for a screen that needs it, also while the screen is paused."""
        self.session.drain_frames()
        self.draw()

    @on(ProbesChanged)
    def drain_probes(self) -> None:
        """Apply the probes' messages; statistics are drawn with the next frame, so that both are of one moment."""
        if self.session.probes.drain():
            self.draw()

    def draw(self) -> None:
        """Let the screen on top draw."""
        demands = [screen.demand for screen in self.screen_stack if isinstance(screen, ViewScreen)]
        if self.session.shows_host and not self._overview.is_of_fleet:
            self.session.close_guest()  # the user has left the host
            self.refresh_bindings()
        self.session.set_demand(Demand.of_all(demands))
        if self.is_running and isinstance(self.screen, ViewScreen) and self.screen.is_mounted:
            state = self.session.view_state(sent_bytes(self))
            if state is not None:
                self.screen.draw(state, self._tab_keys)

    def check_silence(self) -> None:
        """Draw while values grow old: no frame rings a bell for that. Release the memory of closed screens."""
        if self.session.shown.silence_seconds:
            self.draw()
        if self._release.is_due(time.monotonic()):
            release_unused()

    def on_key(self, event: events.Key) -> None:
        """Count the keys after which the tour of the demo disappears."""
        if self.session.count_tour_key(ends=event.key == "escape"):
            self.draw()

    # Requests of the screens

    @on(ProbeRequested)
    def send_probe_request(self, message: ProbeRequested) -> None:
        """Send a request to a probe."""
        self.session.probes.request(message.number, message.probe, message.kind, **message.options)
        self.draw()

    @on(AcknowledgeRequested)
    def acknowledge(self, message: AcknowledgeRequested) -> None:
        """Leave an alert out of the header, or take that back."""
        self.session.acknowledge(message.alert)
        self.draw()

    @on(EmptyCacheRequested)
    def ask_to_empty_cache(self, message: EmptyCacheRequested) -> None:
        """Ask the user, or report why the process cannot be asked."""
        from gpumon.ui.screens.empty_cache import EmptyCacheDialog  # few sessions need it

        assert message.owner.probe is not None
        refusal = READ_ONLY if self.session.is_read_only else self.session.probes.refusal(message.owner.probe)
        if refusal:
            self.notify(refusal, severity="warning", markup=False)
        else:
            self.push_screen(EmptyCacheDialog(message.owner, message.device))

    @on(FleetRefreshRequested)
    def refresh_fleet(self) -> None:
        """Query Prometheus, or connect to hosts that failed."""
        if self.session.fleet is not None:
            self.session.fleet.refresh()

    @on(FleetHostRequested)
    def open_host(self, message: FleetHostRequested) -> None:
        """Show a host of the fleet, or one of its GPUs, on the screens of this host."""
        from gpumon.ui.screens.device import DeviceScreen  # late: the first values must not wait for it

        if self.session.open_host(message.host) is None:
            problem = None if self.session.fleet is None else self.session.fleet.host_problem(message.host)
            text = f"{message.host} reports no GPU now. {problem or ''}".rstrip()
            self.notify(text, severity="warning", markup=False)
            return
        self.push_screen(OverviewScreen(is_of_fleet=True))
        if message.device_key is not None:
            self.push_screen(DeviceScreen(message.device_key))

    @on(TableView.StateRequested)
    def restore_table(self, message: TableView.StateRequested) -> None:
        """Arrange a table as the user left it."""
        tables, view = self.session.tables, message.view
        tables.when_loaded(lambda: view.restore(tables.state(view.table_id)))

    @on(TableView.StateChanged)
    def keep_table(self, message: TableView.StateChanged) -> None:
        """Remember how the user arranged a table."""

        def report(problem: Problem) -> None:
            self.notify(str(problem), severity="warning", markup=False)

        self.session.tables.keep(message.table_id, message.state, report)

    # Actions

    def action_pause(self) -> None:
        self.session.toggle_pause()
        self.draw()

    def action_faster(self) -> None:
        self.session.change_pace(1)
        self.draw()

    def action_slower(self) -> None:
        self.session.change_pace(-1)
        self.draw()

    def action_rewind(self) -> None:
        self.session.seek_by(-SEEK_SECONDS)

    def action_forward(self) -> None:
        self.session.seek_by(SEEK_SECONDS)

    def action_demo(self) -> None:
        try:
            self.session.toggle_demo()
        except CommandError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self._close_above(self._home)  # the other screens may be about GPUs that are not shown now
        self.refresh_bindings()
        self.redraw()

    async def action_ask_to_quit(self) -> None:
        """Quit, but ask first while a workload that was started here is running."""
        running_count = self.session.workloads.state().running_count
        if not running_count or isinstance(self.screen, QuitDialog):
            await self.action_quit()
        else:
            self.push_screen(QuitDialog(running_count), self._quit_if)

    async def action_quit(self) -> None:
        """Quit at once: the collector is asked to end while the terminal is restored, and waited for briefly."""
        closing = threading.Thread(target=self.session.close, name="gpumon-close", daemon=True)
        closing.start()
        if self.leave is not None:
            self.leave(closing)
        self.exit()

    async def _quit_if(self, confirmed: bool | None) -> None:
        if confirmed:
            await self.action_quit()

    def _apply_keymap(self) -> None:
        """Use the user's keys, and report those that cannot be used."""
        if self._user_keymap:
            keys, problems = check_keymap(self._user_keymap)
            self.set_keymap(keys)
            for name in self._tab_keys:
                if name.lower() in keys:
                    self._tab_keys[name] = key_text(keys[name.lower()].partition(",")[0])
            for problem in problems:
                self.notify(problem, severity="warning", timeout=_NOTICE_SECONDS, markup=False)

    def notify_terminal(self, text: str, *, always_rings: bool = False) -> None:
        """Ring the bell of the terminal, and let it notify its user.

        Args:
            text: The notification.
            always_rings: Ring the bell even if the settings do not ask for it.
        """
        if self._driver is not None and not self.is_headless:
            bell, terminal, _ = self._notices
            bell = bell or always_rings
            self._driver.write(notice_sequence(text, bell=bell, terminal=terminal, environment=os.environ))
            self._driver.flush()

    def _ring(self, bell: FramesArrived | RunsChanged | ProbesChanged) -> None:
        self.post_message(bell)


def exclude_modules_from_collection() -> None:
    """Exclude what exists from later garbage collections: visiting all modules would delay a key by 50 ms each time."""
    gc.enable()
    gc.collect()
    gc.freeze()
