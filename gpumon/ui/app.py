"""The app: keys, messages and screens. It owns the session and lets the screen on top draw its state."""

import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on
from textual.app import SystemCommand
from textual.binding import BindingType
from textual.screen import Screen

from gpumon.core.problems import CommandError
from gpumon.core.timeline import DEFAULT_HISTORY_SECONDS
from gpumon.diagnosis.alerts import DEFAULT_THRESHOLDS, Thresholds
from gpumon.operations.workload import WorkloadRun
from gpumon.session.app_session import AppSession, Bells, Demand
from gpumon.session.probe_registry import Watcher
from gpumon.streams.base import Seekable, Stream
from gpumon.ui.bindings import APP_BINDINGS, DEVICE_SCREENS, applies
from gpumon.ui.messages import (
    EmptyCacheRequested,
    FramesArrived,
    ProbeRequested,
    ProbesChanged,
    RestartRequested,
    RunsChanged,
    StartRequested,
    StopRequested,
    ViewStateRequested,
    WorkloadsRefreshRequested,
)
from gpumon.ui.screens.alerts import AlertsScreen
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.screens.confirm_start import ConfirmStartDialog
from gpumon.ui.screens.cost import CostScreen
from gpumon.ui.screens.help import HelpScreen
from gpumon.ui.screens.overview import OverviewScreen
from gpumon.ui.screens.run import RunScreen
from gpumon.ui.screens.workloads import WorkloadsScreen
from gpumon.ui.terminal import sent_bytes
from gpumon.ui.terminal_app import TerminalApp

if TYPE_CHECKING:
    from gpumon.operations.doctor.examination import DoctorOptions

SEEK_SECONDS: Final = 10.0
MIN_RUN_DRAIN_SECONDS: Final = 0.25
"""Workloads send metrics ten times a second; they are drawn less often."""
_SILENCE_TICK_SECONDS: Final = 0.5
_NOTICE_SECONDS: Final = 10.0
_PROBES_DELAY_SECONDS: Final = 0.3
"""gpumon starts to search for probes this long after the first frame was drawn."""


class GpumonApp(TerminalApp):
    """Draws the frames of a stream, and everything else that belongs to a session.

    Args:
        stream: Source of the frames; started by the caller.
        theme: A key of `THEMES`.
        history_seconds: Length of the history of every metric.
        notice: Shown at the start.
        thresholds: The values from which on a metric raises an alert.
    """

    TITLE = "gpumon"
    CSS_PATH = Path(__file__).with_name("gpumon.tcss")
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [*APP_BINDINGS]

    doctor_options: "DoctorOptions | None" = None
    """What the doctor checks, if not everything."""

    def __init__(
        self,
        stream: Stream,
        theme: str = "dark",
        history_seconds: float = DEFAULT_HISTORY_SECONDS,
        *,
        notice: str = "",
        thresholds: Thresholds = DEFAULT_THRESHOLDS,
    ) -> None:
        super().__init__(theme)
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
        )
        self._runs_drained_at = 0.0
        self._is_run_drain_due = False
        self._are_probes_due = False
        self._dialog: ConfirmStartDialog | None = None

    def on_mount(self) -> None:
        """Open the overview, and drain frames from now on."""
        self.push_screen(OverviewScreen())
        if self._notice:
            self.notify(self._notice, severity="warning", timeout=_NOTICE_SECONDS, markup=False)
        self.set_interval(_SILENCE_TICK_SECONDS, self.check_silence)
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
        session.drain_frames()
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

    @on(RunsChanged)
    def drain_runs_soon(self) -> None:
        """Apply the events of all runs now, or as soon as the last time is long enough ago."""
        wait = self._runs_drained_at + MIN_RUN_DRAIN_SECONDS - time.monotonic()
        if wait <= 0:
            self._drain_runs()
        elif not self._is_run_drain_due:
            self._is_run_drain_due = True
            self.set_timer(wait, self._drain_runs)

    @on(ProbesChanged)
    def drain_probes(self) -> None:
        """Apply the probes' messages; statistics are drawn with the next frame, so that both are of one moment."""
        if self.session.probes.drain():
            self.draw()

    def draw(self) -> None:
        """Let the screen on top draw."""
        screens = [screen for screen in self.screen_stack if isinstance(screen, ViewScreen)]
        demands = [screen.demand for screen in screens]
        demand = Demand(
            device_keys=frozenset().union(*(demand.device_keys for demand in demands)),
            costs=any(demand.costs for demand in demands),
            probes=any(demand.probes for demand in demands),
        )
        self.session.set_demand(demand)
        if self.is_running and isinstance(self.screen, ViewScreen) and self.screen.is_mounted:
            state = self.session.view_state(sent_bytes(self))
            if state is not None:
                self.screen.show(state)

    def check_silence(self) -> None:
        """Draw while values grow old: no frame rings a bell for that."""
        if self.session.shown.silence_seconds:
            self.draw()

    # Requests of the screens

    @on(WorkloadsRefreshRequested)
    def refresh_workloads(self) -> None:
        """Search for workloads."""
        self.session.workloads.refresh()

    @on(StartRequested)
    def start_workload(self, message: StartRequested) -> None:
        """Start one run for each device; the screen of a single run opens."""
        controller, request = self.session.workloads, message.request
        controller.interpreter = request.python
        try:
            runs = [
                controller.registry.start(request.workload, target, request.parameters, request.python)
                for target in request.targets
            ]
        except ValueError as refusal:
            self.notify(str(refusal), severity="warning", markup=False)
            return
        if len(runs) == 1:
            self.push_screen(RunScreen(runs[0]))
        self.draw()

    @on(StopRequested)
    def stop_run(self, message: StopRequested) -> None:
        """Stop a run."""
        message.run.cancel()
        self.draw()

    @on(RestartRequested)
    def restart_run(self, message: RestartRequested) -> None:
        """Run a workload again, and show the new run in place of the old one."""
        try:
            run = self.session.workloads.registry.start_again(message.run)
        except ValueError as refusal:
            self.notify(str(refusal), severity="warning", markup=False)
            return
        if isinstance(self.screen, RunScreen):
            self.switch_screen(RunScreen(run))

    @on(ProbeRequested)
    def send_probe_request(self, message: ProbeRequested) -> None:
        """Send a request to a probe."""
        self.session.probes.request(message.number, message.probe, message.kind, **message.options)
        self.draw()

    @on(EmptyCacheRequested)
    def ask_to_empty_cache(self, message: EmptyCacheRequested) -> None:
        """Ask the user, or report why the process cannot be asked."""
        from gpumon.ui.screens.empty_cache import EmptyCacheDialog  # few sessions need it

        assert message.owner.probe is not None
        refusal = self.session.probes.refusal(message.owner.probe)
        if refusal:
            self.notify(refusal, severity="warning", markup=False)
        else:
            self.push_screen(EmptyCacheDialog(message.owner, message.device))

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
        self.refresh_bindings()
        self.redraw()

    def action_memory(self) -> None:
        from gpumon.ui.screens.memory import MemoryScreen  # late, like the screens below: the first frame must not wait

        key = self.screen.key if isinstance(self.screen, DEVICE_SCREENS) else None
        if key is None:
            self.notify("No GPU is selected.", severity="warning", markup=False)
        else:
            self.push_screen(MemoryScreen(key))

    def action_workloads(self) -> None:
        self.push_screen(WorkloadsScreen())

    def action_explain(self) -> None:
        from gpumon.ui.screens.explain import ExplainScreen

        self.push_screen(ExplainScreen())

    def action_alerts(self) -> None:
        self.push_screen(AlertsScreen())

    def action_doctor(self) -> None:
        from gpumon.ui.screens.doctor import DoctorScreen

        self.push_screen(DoctorScreen(self.doctor_options))

    def action_cost(self) -> None:
        self.push_screen(CostScreen())

    def action_help(self) -> None:
        self.push_screen(HelpScreen(self.screen))

    async def action_quit(self) -> None:
        """Quit at once; the collector is asked to end in the meantime, and not waited for."""
        threading.Thread(target=self.session.close, name="gpumon-close", daemon=True).start()
        self.exit()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the keys that the stream or the screen has no use for."""
        return self._applies(action, self.screen) and super().check_action(action, parameters)

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """Adds the attribute without which some SVG viewers drop the indentation of every line."""
        svg = super().export_screenshot(title=title, simplify=simplify)
        return svg.replace("<text ", '<text xml:space="preserve" ')

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: gpumon's actions that apply to the screen below it, then Textual's."""
        titles = set()
        for binding in APP_BINDINGS:
            if self._applies(binding.action, screen):

                async def run(action: str = binding.action) -> None:
                    await self.run_action(action)

                title = (binding.id or binding.description).capitalize()
                titles.add(title)
                yield SystemCommand(title, binding.tooltip, run)
        yield from (command for command in super().get_system_commands(screen) if command.title not in titles)

    def _applies(self, action: str, screen: Screen[object]) -> bool:
        if action == "demo" and not self.session.can_toggle_demo:
            return False
        return applies(action, self.session.stream, screen)

    def _ring(self, bell: FramesArrived | RunsChanged | ProbesChanged) -> None:
        self.post_message(bell)

    def _drain_runs(self) -> None:
        self._is_run_drain_due = False
        self._runs_drained_at = time.monotonic()
        self.session.drain_runs()
        self._show_question()
        self.draw()

    def _show_question(self) -> None:
        """Ask the user about a run that waits for confirmation, and close a question that no longer matters."""
        question, dialog = self.session.workloads.question, self._dialog
        if dialog is None and question is not None:
            self._dialog = ConfirmStartDialog(question)
            run = question.run
            self.push_screen(self._dialog, lambda confirmed: self._answer_question(run, confirmed))
        elif dialog is not None and (question is None or question.run is not dialog.run) and self.screen is dialog:
            dialog.dismiss(None)  # under another screen it stays, and its answer no longer matters

    def _answer_question(self, run: WorkloadRun, confirmed: bool | None) -> None:
        self._dialog = None
        if confirmed is None:
            self._ring(RunsChanged())
        else:
            self.session.workloads.answer(run, confirmed=confirmed)
