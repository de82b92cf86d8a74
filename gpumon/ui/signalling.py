"""Signals to processes, from the request of a screen to the notices about what became of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from textual import on

from gpumon.operations.signals import SentSignal, SignalRefusal, SignalTarget
from gpumon.ui.messages import SignalRequested
from gpumon.ui.navigation import NavigatedApp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.notifications import SeverityLevel

    from gpumon.session.signal_controller import Examined, SignalNotice

READ_ONLY: Final = "gpumon is read-only."
_OTHER_HOST: Final = "These processes are not of this host now: a recording, the demo or a pipe shows them."
_NOTICE_SECONDS: Final = 10.0


class SignallingApp(NavigatedApp):
    """An app that sends signals, after a dialog."""

    @on(SignalRequested)
    def ask_for_signal(self, message: SignalRequested) -> None:
        """Examine the processes, then ask the user which signal to send; report each that gets none."""
        refusal = READ_ONLY if self.session.is_read_only else "" if self.session.shown.is_this_host else _OTHER_HOST
        if refusal:
            self.notify(refusal, severity="warning", markup=False)
        elif message.processes:
            self.session.signals.examine(message.processes, self._open_signal_dialog)

    def _open_signal_dialog(self, examined: Examined) -> None:
        from gpumon.ui.screens.signal import SignalDialog  # few sessions need it

        targets = [item for item in examined if isinstance(item, SignalTarget)]
        refusals = [item for item in examined if isinstance(item, SignalRefusal)]
        if targets:
            self.push_screen(SignalDialog(targets, refusals), partial(self._send_signal, targets))
            return
        for refusal in refusals:
            self.notify(refusal.reason, severity="warning", markup=False)

    def _send_signal(self, targets: Sequence[SignalTarget], sent: SentSignal | None) -> None:
        if sent is not None:
            self.session.signals.send(targets, sent)

    def report_signal(self, notice: SignalNotice) -> None:
        """Show what became of a signal."""
        severity: SeverityLevel = "warning" if notice.is_warning else "information"
        self.notify(notice.text, severity=severity, timeout=_NOTICE_SECONDS, markup=False)
