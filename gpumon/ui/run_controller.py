"""Runs of workloads: from the request of a screen to the run, and the question that a run asks before it starts."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gpumon.session.app_session import AppSession
from gpumon.ui.messages import RestartRequested, RunsChanged, StartRequested, StopRequested
from gpumon.ui.navigation import ScreenStack
from gpumon.ui.process_actions import READ_ONLY

if TYPE_CHECKING:
    from gpumon.operations.workload import WorkloadRun
    from gpumon.ui.screens.confirm import ConfirmStartDialog

MIN_RUN_DRAIN_SECONDS: Final = 0.25
"""Workloads send metrics ten times a second; they are drawn less often."""


class RunController:
    """Starts, stops and drains runs.

    Args:
        stack: Shows the screens of runs, and the question.
        session: Has the runs.
        draw: Draws the screen on top.
        set_timer: Calls a function after a number of seconds.
    """

    def __init__(
        self,
        stack: ScreenStack,
        session: AppSession,
        draw: Callable[[], object],
        set_timer: Callable[[float, Callable[[], object]], object],
    ) -> None:
        self._stack = stack
        self._session = session
        self._draw = draw
        self._set_timer = set_timer
        self._drained_at = 0.0
        self._is_drain_due = False
        self._dialog: ConfirmStartDialog | None = None

    def start(self, message: StartRequested) -> None:
        """Start one run for each device; the screen of a single run opens."""
        from gpumon.ui.screens.run import RunScreen  # late: the first values must not wait for it

        if self._session.is_read_only:
            self._stack.warn(READ_ONLY)
            return
        controller, request = self._session.workloads, message.request
        controller.interpreter = request.python
        try:
            runs = [
                controller.registry.start(request.workload, target, request.parameters, request.python)
                for target in request.targets
            ]
        except ValueError as refusal:
            self._stack.warn(refusal)
            return
        if len(runs) == 1:
            self._stack.push_screen(RunScreen(runs[0]))
        self._draw()

    def stop(self, message: StopRequested) -> None:
        """Stop a run."""
        message.run.cancel()
        self._draw()

    def restart(self, message: RestartRequested) -> None:
        """Run a workload again, and show the new run in place of the old one."""
        from gpumon.ui.screens.run import RunScreen  # late, as in `start`

        try:
            run = self._session.workloads.registry.start_again(message.run)
        except ValueError as refusal:
            self._stack.warn(refusal)
            return
        if isinstance(self._stack.screen, RunScreen):
            self._stack.switch_screen(RunScreen(run))

    def drain_soon(self, _: RunsChanged) -> None:
        """Apply the events of all runs now, or as soon as the last time is long enough ago."""
        wait = self._drained_at + MIN_RUN_DRAIN_SECONDS - time.monotonic()
        if wait <= 0:
            self._drain()
        elif not self._is_drain_due:
            self._is_drain_due = True
            self._set_timer(wait, self._drain)

    def _drain(self) -> None:
        self._is_drain_due = False
        self._drained_at = time.monotonic()
        self._session.drain_runs()
        self._show_question()
        self._draw()

    def _show_question(self) -> None:
        """Ask the user about a run that waits for confirmation, and close a question that no longer matters."""
        question, dialog = self._session.workloads.question, self._dialog
        if dialog is None and question is not None:
            from gpumon.ui.screens.confirm import ConfirmStartDialog  # late: the first frame must not wait for it

            self._dialog = ConfirmStartDialog(question)
            run = question.run
            self._stack.push_screen(self._dialog, lambda confirmed: self._answer(run, confirmed))
        elif (
            dialog is not None and (question is None or question.run is not dialog.run) and self._stack.screen is dialog
        ):
            dialog.dismiss(None)  # under another screen it stays, and its answer no longer matters

    def _answer(self, run: "WorkloadRun", confirmed: bool | None) -> None:
        self._dialog = None
        self._session.workloads.answer(run, confirmed=confirmed)
