"""The app: keys, messages and screens. It owns the session and lets the screen on top draw its state."""

import gc
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual import events, on
from textual.message import Message

from gpumon.core.inbox import Bell
from gpumon.core.problems import CommandError
from gpumon.core.timeline import DEFAULT_HISTORY_SECONDS
from gpumon.health.alerts import DEFAULT_THRESHOLDS, Thresholds
from gpumon.present.palette import Palette
from gpumon.present.top_line import TABS
from gpumon.session.alert_notifier import NO_NOTICES, NotifySettings
from gpumon.session.app_session import AppSession, Bells
from gpumon.session.probe_registry import Watcher
from gpumon.streams.base import Stream
from gpumon.ui import messages, terminal
from gpumon.ui.base_app import BaseApp
from gpumon.ui.drawing import Drawing
from gpumon.ui.keymap import TAB_BINDINGS, Bindings, check_keymap, key, key_text
from gpumon.ui.navigation import Navigation, screen_class
from gpumon.ui.notifications import Notifications
from gpumon.ui.process_actions import ProcessActions
from gpumon.ui.run_controller import RunController
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.widgets.table_view import TableView

if TYPE_CHECKING:
    from textual.command import Provider

    from gpumon.fleet.settings import FleetSource

_SEEK_SECONDS: Final = 10.0
_NOTICE_SECONDS: Final = 10.0
_SWITCH_SECONDS: Final = 0.001
"""How long a thread that decodes a frame keeps a key waiting: Python's 5 ms would be spent several times per key."""
_FREEZE_SECONDS: Final = 3.0
"""After the start, when the modules of the first screens are imported."""


def _commands() -> "type[Provider]":
    from gpumon.ui.commands import GpumonCommands  # late: the first frame must not wait for it

    return GpumonCommands


class GpumonApp(BaseApp):
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
        load_probe: Before a probe is loaded into a process: ``ask``; ``own`` asks for other users only; or ``never``.
        fleet: Where a fleet comes from, or None.
        opens_fleet: Whether the fleet is the first screen.
    """

    TITLE = "gpumon"
    ENABLE_COMMAND_PALETTE = True
    COMMANDS: ClassVar[set[Any]] = {_commands}
    BINDINGS: ClassVar[Bindings] = [
        *TAB_BINDINGS,
        key("previous-gpu", "GPU", "Previous GPU", "select_device(-1)", display="[ ]"),
        key("next-gpu", "GPU", "Next GPU", "select_device(1)", show=False),
        key("pause", "Pause", "Pause or resume; live frames still go into the history"),
        key("faster", "Pace", "Faster: a shorter interval, or a higher replay speed", "change_pace(1)", display="+/-"),
        key("slower", "Slower", "Slower: a longer interval, or a lower replay speed", "change_pace(-1)", show=False),
        key("forward", "10s", "Ten seconds forward in the recording", f"seek({_SEEK_SECONDS})", display=",/."),
        key("rewind", "Back", "Ten seconds back in the recording", f"seek(-{_SEEK_SECONDS})", show=False),
        key("cost", "Cost", "CPU, memory, output and driver calls of gpumon", "open_screen('cost')"),
        key("topology", "Topology", "Connections of the GPUs: NVLink, PCIe, NUMA, network", "open_screen('topology')"),
        key("notify-when", "Notify", "Notify me when a GPU is free or a process ends"),
        key("explain-selected", "Explain", "Why the selected GPU has an alert", show=False),
        key("record", "Record", "Record live values to a file; again: stop", show=False),
        key("demo", "Demo", "Play the bundled recording, or go back to live values"),
    ]

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
        load_probe: str = "ask",
        fleet: "FleetSource | None" = None,
        opens_fleet: bool = False,
    ) -> None:
        super().__init__(theme, user_palettes)
        self._user_keymap = keymap
        hidden = {"Workloads"} if is_read_only else set()
        hidden |= {"Fleet"} if fleet is None else set()
        self._tab_keys = {tab.name: tab.key for tab in TABS if tab.name not in hidden}
        self._opens_fleet = opens_fleet
        self._notice = notice
        self._waiting_bells: set[type[Message]] = set()

        def bell(kind: type[messages.BellMessage]) -> Bell:
            def ring() -> None:  # one of each kind waits: on a busy host, every key would wait for a draw
                if kind not in self._waiting_bells:
                    self._waiting_bells.add(kind)
                    if not self.post_message(kind()):
                        self._waiting_bells.discard(kind)

            return ring

        bells = Bells(bell(messages.FramesArrived), bell(messages.RunsChanged), bell(messages.ProbesChanged))
        self.session = AppSession(
            stream,
            bells,
            self.call_later,
            open_watcher,
            history_seconds=history_seconds,
            thresholds=thresholds,
            columns=columns,
            notify=notices,
            report=self.warn,
            is_read_only=is_read_only,
            load_probe=load_probe,
            fleet=fleet,
        )
        self.navigation = Navigation(self, self.session)
        self.drawing = Drawing(self, self.session, self.navigation, self._tab_keys)
        self.notifications = Notifications(self, self.session, notices, partial(terminal.write, self))
        self.session.recorder.report = self.say
        self._handlers = self._message_handlers()

    def _message_handlers(self) -> Mapping[type[messages.AppMessage], Callable[[Any], object]]:
        """What answers each message that a screen, a widget or a thread sends to the app."""
        session, tables, drawing = self.session, self.session.tables, self.drawing
        processes = ProcessActions(self, session)
        runs = RunController(self, session, drawing.draw, self.set_timer)
        return {
            messages.FramesArrived: drawing.drain_frames,
            messages.ViewStateRequested: drawing.redraw,
            messages.ProbesChanged: drawing.drain_probes,
            messages.ProbeRequested: self.send_probe_request,
            messages.AcknowledgeRequested: self.acknowledge,
            messages.RunsChanged: runs.drain_soon,
            messages.WorkloadsRefreshRequested: lambda _: session.workloads.refresh(),
            messages.StartRequested: runs.start,
            messages.StopRequested: runs.stop,
            messages.RestartRequested: runs.restart,
            messages.SignalRequested: processes.ask_for_signal,
            messages.EmptyCacheRequested: processes.ask_to_empty_cache,
            messages.FleetRefreshRequested: lambda _: None if session.fleet is None else session.fleet.refresh(),
            messages.HostsAdded: self.add_hosts,
            messages.FleetHostRequested: self.navigation.open_host,
            TableView.StateRequested: lambda message: tables.restore(message.view.table_id, message.view.restore),
            TableView.StateChanged: lambda message: tables.keep(message.table_id, message.state, self.warn),
        }

    def on_mount(self) -> None:
        """Open the overview, and drain frames from now on."""
        self._apply_keymap()
        self.push_screen(OverviewScreen())
        if self._opens_fleet:
            self.navigation.open("fleet")
        if self._notice:
            self.notify(self._notice, severity="warning", timeout=_NOTICE_SECONDS, markup=False)
        self.drawing.start()
        sys.setswitchinterval(_SWITCH_SECONDS)
        self.set_timer(_FREEZE_SECONDS, exclude_modules_from_collection)
        self.session.start()

    @on(messages.AppMessage)
    def handle(self, message: messages.AppMessage) -> None:
        """Let the part that a message concerns answer it."""
        self._waiting_bells.discard(type(message))
        self._handlers[type(message)](message)

    def on_key(self, event: events.Key) -> None:
        """Count the keys after which the tour of the demo disappears."""
        if self.session.count_tour_key(ends=event.key == "escape"):
            self.drawing.draw()
            self.call_later(self.say, "")  # the key had an effect after all

    def send_probe_request(self, message: messages.ProbeRequested) -> None:
        """Send a request to a probe."""
        self.session.shown_probes.request(message.number, message.probe, message.kind, **message.options)
        self.drawing.draw()

    def acknowledge(self, message: messages.AcknowledgeRequested) -> None:
        """Leave an alert out of the header, or take that back."""
        self.session.acknowledge(message.alert)
        self.drawing.draw()

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the keys that the stream or the screen in front has no use for."""
        return self.navigation.applies(action, parameters) and super().check_action(action, parameters)

    def add_hosts(self, message: messages.HostsAdded) -> None:
        """Read hosts through ssh, and show them."""
        self.session.read_hosts(message.hosts)
        self._tab_keys.update({tab.name: tab.key for tab in TABS if tab.name == "Fleet"})
        self.navigation.open("fleet")

    def legend(self) -> str:
        return "\n".join(screen_class(name).LEGEND for name in ("overview", "device", "memory", "processes"))

    def action_pause(self) -> None:
        self.session.toggle_pause()
        self.drawing.draw()

    def action_change_pace(self, direction: int) -> None:
        self.session.change_pace(direction)
        self.drawing.draw()

    def action_seek(self, seconds: float) -> None:
        self.session.seek_by(seconds)

    def action_open_screen(self, name: str) -> None:
        self.navigation.open(name)

    def action_select_device(self, step: int) -> None:
        self.navigation.select_device(step)

    def action_explain_selected(self) -> None:
        self.navigation.explain_device()

    def action_record(self) -> None:
        self.session.recorder.toggle()
        self.drawing.draw()

    def action_notify_when(self) -> None:
        self.notifications.choose()

    def action_demo(self) -> None:
        try:
            self.session.toggle_demo()
        except CommandError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self.navigation.go_home()  # the other screens may be about GPUs that are not shown now
        self.refresh_bindings()
        self.drawing.redraw()

    async def action_ask_to_quit(self) -> None:
        """Quit, but ask first while a workload that was started here is running."""
        from gpumon.ui.screens.confirm import QuitDialog  # late: the first frame must not wait for it

        def quit_if(confirmed: bool | None) -> None:
            if confirmed:
                self.call_later(self.action_quit)

        running_count = self.session.workloads.state().running_count
        if not running_count or isinstance(self.screen, QuitDialog):
            await self.action_quit()
        else:
            self.push_screen(QuitDialog(running_count), quit_if)

    async def action_quit(self) -> None:
        """Quit at once: the collector is asked to end while the terminal is restored, and waited for briefly."""
        closing = threading.Thread(target=self.session.close, name="gpumon-close", daemon=True)
        closing.start()
        if self.leave is not None:
            self.leave(closing)
        self.exit()

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


def open_watcher() -> Watcher:
    """The connection to the probes of this host."""
    from gpumon.probe.client import ProbeWatcher  # late: the first frame must not wait for it

    return ProbeWatcher()


def exclude_modules_from_collection() -> None:
    """Collect garbage again, which the start had disabled, but not what exists by now.

    Visiting all modules would delay a key by 50 ms each time.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
