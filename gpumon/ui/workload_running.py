"""Runs of workloads: from the request of a screen to the run, and the question that a run asks before it starts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from textual import on

from gpumon.ui.messages import RestartRequested, RunsChanged, StartRequested, StopRequested, WorkloadsRefreshRequested
from gpumon.ui.notifying import NotifyingApp
from gpumon.ui.signalling import READ_ONLY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.operations.workload import WorkloadRun
    from gpumon.present.palette import Palette
    from gpumon.ui.screens.confirm_start import ConfirmStartDialog

MIN_RUN_DRAIN_SECONDS: Final = 0.25
"""Workloads send metrics ten times a second; they are drawn less often."""


class WorkloadRunningApp(NotifyingApp):
    """An app that starts, stops and draws runs."""

    def __init__(self, theme: str, user_palettes: Sequence[Palette] = ()) -> None:
        """Show a theme by its name, built-in or one of the user's."""
        super().__init__(theme, user_palettes)
        self._runs_drained_at = 0.0
        self._is_run_drain_due = False
        self._start_dialog: ConfirmStartDialog | None = None

    @on(WorkloadsRefreshRequested)
    def refresh_workloads(self) -> None:
        """Search for workloads."""
        self.session.workloads.refresh()

    @on(StartRequested)
    def start_workload(self, message: StartRequested) -> None:
        """Start one run for each device; the screen of a single run opens."""
        from gpumon.ui.screens.run import RunScreen  # late: the first values must not wait for it

        if self.session.is_read_only:
            self.notify(READ_ONLY, severity="warning")
            return
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
        from gpumon.ui.screens.run import RunScreen  # late, as in `start_workload`

        try:
            run = self.session.workloads.registry.start_again(message.run)
        except ValueError as refusal:
            self.notify(str(refusal), severity="warning", markup=False)
            return
        if isinstance(self.screen, RunScreen):
            self.switch_screen(RunScreen(run))

    @on(RunsChanged)
    def drain_runs_soon(self) -> None:
        """Apply the events of all runs now, or as soon as the last time is long enough ago."""
        wait = self._runs_drained_at + MIN_RUN_DRAIN_SECONDS - time.monotonic()
        if wait <= 0:
            self._drain_runs()
        elif not self._is_run_drain_due:
            self._is_run_drain_due = True
            self.set_timer(wait, self._drain_runs)

    def _drain_runs(self) -> None:
        self._is_run_drain_due = False
        self._runs_drained_at = time.monotonic()
        self.session.drain_runs()
        self._show_question()
        self.draw()

    def _show_question(self) -> None:
        """Ask the user about a run that waits for confirmation, and close a question that no longer matters."""
        question, dialog = self.session.workloads.question, self._start_dialog
        if dialog is None and question is not None:
            from gpumon.ui.screens.confirm_start import ConfirmStartDialog  # late: few sessions need it

            self._start_dialog = ConfirmStartDialog(question)
            run = question.run
            self.push_screen(self._start_dialog, lambda confirmed: self._answer_question(run, confirmed))
        elif dialog is not None and (question is None or question.run is not dialog.run) and self.screen is dialog:
            dialog.dismiss(None)  # under another screen it stays, and its answer no longer matters

    def _answer_question(self, run: WorkloadRun, confirmed: bool | None) -> None:
        self._start_dialog = None
        if confirmed is None:
            self.post_message(RunsChanged())
        else:
            self.session.workloads.answer(run, confirmed=confirmed)
