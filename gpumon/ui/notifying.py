"""Notifications that the user asks for: from the key to the dialog, and from what came true to the bell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpumon.session.wait_registry import WaitChoice, wait_choices
from gpumon.ui.screens.base import ViewScreen
from gpumon.ui.signalling import SignallingApp

if TYPE_CHECKING:
    from collections.abc import Sequence

_OTHER_HOST: Final = "These GPUs are not of this host now: a recording, the demo or a pipe shows them."
_NOTICE_SECONDS: Final = 60.0
"""The user may be away."""


class NotifyingApp(SignallingApp):
    """An app that notifies the user of what comes true."""

    def action_notify_when(self) -> None:
        from gpumon.ui.screens.notify_when import NotifyWhenDialog  # few sessions need it

        screen, frame, waits = self.screen, self.session.store.frame, self.session.waits
        if not self.session.shown.is_this_host:
            self.notify(_OTHER_HOST, severity="warning", markup=False)
        elif isinstance(screen, ViewScreen) and frame is not None:
            device = next((device for device in frame.devices if device.key == screen.device_key), None)
            choices = wait_choices(device, screen.selected_process)
            self.push_screen(NotifyWhenDialog(choices, waits.armed, frame), self._arm)

    def report_true(self, sentence: str) -> None:
        """Ring the bell, and show what came true."""
        self.notify_terminal(sentence, always_rings=True)
        self.notify(sentence, title="Notify me when …", timeout=_NOTICE_SECONDS, markup=False)

    def report_hang(self, sentence: str) -> None:
        """Ring the bell, and show which training job hangs."""
        self.notify_terminal(sentence, always_rings=True)
        self.notify(sentence, severity="error", timeout=_NOTICE_SECONDS, markup=False)

    def notify_terminal(self, text: str, *, always_rings: bool = False) -> None:
        """Ring the bell of the terminal, and let it notify its user."""
        raise NotImplementedError

    def draw(self) -> None:
        """Let the screen on top draw."""
        raise NotImplementedError

    def _arm(self, choices: Sequence[WaitChoice] | None) -> None:
        if choices is not None:
            self.session.waits.arm(choices)
            self.draw()
