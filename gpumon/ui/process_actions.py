"""What changes a process: a signal, and a request to empty its cache. A dialog asks before both."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from textual.notifications import SeverityLevel

from gpumon.operations.signals import SentSignal, SignalRefusal, SignalTarget
from gpumon.session.app_session import AppSession
from gpumon.session.signal_controller import Examined, SignalNotice
from gpumon.ui.messages import EmptyCacheRequested, SignalRequested
from gpumon.ui.navigation import ScreenStack

READ_ONLY: Final = "gpumon is read-only."
_OTHER_HOST: Final = "These processes are not of this host now: a recording, the demo or a pipe shows them."
_NOTICE_SECONDS: Final = 10.0


class ProcessActions:
    """Opens the dialogs, and reports what became of a signal.

    Args:
        stack: Shows dialogs and notices.
        session: Sends the signals, and knows the probes.
    """

    def __init__(self, stack: ScreenStack, session: AppSession) -> None:
        self._stack = stack
        self._session = session
        session.signals.report = self._report

    def ask_for_signal(self, message: SignalRequested) -> None:
        """Examine the processes, then ask the user which signal to send; report each that gets none."""
        refusal = READ_ONLY if self._session.is_read_only else "" if self._session.shown.is_this_host else _OTHER_HOST
        if refusal:
            self._stack.warn(refusal)
        elif message.processes:
            self._session.signals.examine(message.processes, self._open_signal_dialog)

    def ask_to_empty_cache(self, message: EmptyCacheRequested) -> None:
        """Ask the user, or report why the process cannot be asked."""
        from gpumon.ui.screens.empty_cache import EmptyCacheDialog  # few sessions need it

        assert message.owner.probe is not None
        refusal = READ_ONLY if self._session.is_read_only else self._session.shown_probes.refusal(message.owner.probe)
        if refusal:
            self._stack.warn(refusal)
        else:
            self._stack.push_screen(EmptyCacheDialog(message.owner, message.device))

    def _open_signal_dialog(self, examined: Examined) -> None:
        from gpumon.ui.screens.confirm import SignalDialog  # few sessions need it

        targets = [item for item in examined if isinstance(item, SignalTarget)]
        refusals = [item for item in examined if isinstance(item, SignalRefusal)]
        if targets:
            frame = self._session.home.store.frame
            dialog = SignalDialog(targets, refusals, () if frame is None else frame.devices)
            self._stack.push_screen(dialog, partial(self._send, targets))
            return
        for refusal in refusals:
            self._stack.warn(refusal.reason)

    def _send(self, targets: Sequence[SignalTarget], sent: SentSignal | None) -> None:
        if sent is not None:
            self._session.signals.send(targets, sent)

    def _report(self, notice: SignalNotice) -> None:
        severity: SeverityLevel = "warning" if notice.is_warning else "information"
        self._stack.notify(notice.text, severity=severity, timeout=_NOTICE_SECONDS, markup=False)
