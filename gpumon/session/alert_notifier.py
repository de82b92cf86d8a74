"""Alerts that reach people who look elsewhere: a bell, a notification of the terminal, and a command."""

import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from os import killpg
from pathlib import Path
from signal import SIGKILL
from typing import Final, NamedTuple

from gpumon.core.json_text import json_line
from gpumon.core.limits import limit_problem
from gpumon.core.model import Frame
from gpumon.core.ownership import root_ownership_problem
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_bytes, safe_text
from gpumon.health.alerts import Alert, AlertChange, Severity
from gpumon.session.background import RunInBackground

COMMAND_SECONDS: Final = 10.0
_KILLED_SECONDS: Final = 1.0
"""How long a command that was killed may take to end."""
_MAX_WAITING: Final = 20
"""Alerts that wait for the command; older ones are dropped."""
_MAX_TEXT: Final = 200
_REMEDY: Final = "See command in the table [notify] of the configuration file."


class NotifySettings(NamedTuple):
    """How the user wants to be notified of new alerts above info.

    Attributes:
        bell: Whether the terminal rings its bell.
        terminal: The notification that the terminal understands, ``osc9`` or ``osc777``; empty for none.
        command: Program and arguments that receive the alert as JSON on standard input; empty for none.
    """

    bell: bool = False
    terminal: str = ""
    command: tuple[str, ...] = ()


NO_NOTICES: Final = NotifySettings()


class AlertNotifier:
    """Notifies of alerts that begin after the first frame: those that stand at the start are on the screen.

    Args:
        settings: How to notify.
        in_background: Runs the command.
        report: Called with the reason if the command fails, but not again while it keeps failing.

    Attributes:
        show: Called with a sentence for the bell and the terminal.
    """

    def __init__(
        self, settings: NotifySettings, in_background: RunInBackground, report: Callable[[Problem], None]
    ) -> None:
        self._settings = settings
        self._in_background = in_background
        self.show: Callable[[str], object] = lambda _: None
        self._report = report
        self._has_frame = False
        self._waiting: deque[str] = deque(maxlen=_MAX_WAITING)
        self._is_running = False
        self._has_failed = False

    def observe(self, frame: Frame, changes: Iterable[AlertChange]) -> None:
        """Notify of the alerts that began with a frame."""
        had_frame, self._has_frame = self._has_frame, True
        alerts = [alert for alert, has_begun in changes if has_begun and alert.severity is not Severity.INFO]
        if not had_frame or not alerts:
            return
        if self._settings.bell or self._settings.terminal:
            more = f" and {len(alerts) - 1} more" if len(alerts) > 1 else ""
            self.show(safe_text(f"{alerts[0].detail}{more}", _MAX_TEXT))
        self.run_command_for(alerts, frame)

    def run_command_for(self, alerts: Iterable[Alert], frame: Frame) -> None:
        """Run the command, if there is one, for alerts or for what the user has waited for."""
        if self._settings.command:
            self._waiting.extend(json_line(_document(alert, frame)) for alert in alerts)
            self._run_next()

    def _run_next(self) -> None:
        """Run the command for the oldest alert that waits, unless it is running."""
        if self._waiting and not self._is_running:
            self._is_running = True
            self._in_background(partial(run_command, self._settings.command, self._waiting.popleft()), self._finish)

    def _finish(self, problem: Problem | None) -> None:
        self._is_running = False
        if problem is not None and not self._has_failed:
            self._report(problem)
        self._has_failed = problem is not None
        self._run_next()


def run_command(command: Sequence[str], text: str, seconds: float = COMMAND_SECONDS) -> Problem | None:
    """Run a command without a shell, with a text as its input; returns why it failed, or None.

    Args:
        command: Program and arguments. Root does not run a program that another user controls.
        text: Standard input.
        seconds: Then the command and its children are killed.
    """
    import shutil  # late: most users have no command

    program = shutil.which(command[0])
    name = safe_text(command[0], 100)
    if program is None:
        return Problem(ProblemCode.NOT_FOUND, f"The command for alerts was not found: {name}.", _REMEDY)
    refusal = root_ownership_problem(Path(program).absolute())
    if refusal is not None:
        return Problem(refusal.code, f"The command for alerts, {name}, was not run. {refusal.reason}", refusal.remedy)
    try:
        process = subprocess.Popen(
            command,
            executable=program,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        reason = (limit_problem(error) or Problem(ProblemCode.UNKNOWN, error.strerror or str(error))).reason
        return Problem(ProblemCode.UNKNOWN, f"The command for alerts, {name}, cannot be run: {reason}", _REMEDY)
    try:
        _, errors = process.communicate(f"{text}\n".encode(), seconds)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError, PermissionError):
            killpg(process.pid, SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_KILLED_SECONDS)
        reason = f"The command for alerts, {name}, did not end within {seconds:g} s and was killed."
        return Problem(ProblemCode.UNRESPONSIVE, reason, _REMEDY)
    if process.returncode == 0:
        return None
    last = safe_bytes(errors.strip().splitlines()[-1], _MAX_TEXT) if errors.strip() else "no message"
    reason = f"The command for alerts, {name}, failed with exit code {process.returncode}: {last}"
    return Problem(ProblemCode.UNKNOWN, reason, _REMEDY)


def _document(alert: Alert, frame: Frame) -> dict[str, object]:
    from gpumon.operations.status import alert_document  # late: the first values must not wait for it

    return {
        "schema": 1,
        "host": frame.host.name,
        "time_seconds": round(frame.time_seconds, 3),
        "device_index": alert.device_index,
        "device_uuid": alert.device_key,
        **alert_document(alert),
    }
