"""Notifications: a dialog chooses what to wait for; notices, the bell and the terminal report what has come true."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from gpumon.core.text import safe_text
from gpumon.session.alert_notifier import NotifySettings
from gpumon.session.app_session import AppSession
from gpumon.session.wait_registry import WaitChoice, wait_choices
from gpumon.ui.navigation import ScreenStack
from gpumon.ui.screens.base import ViewScreen

_NOTICE_SECONDS: Final = 60.0
"""The user may be away."""
_BELL: Final = "\a"
_ESCAPE: Final = "\x1b"


class Notifications:
    """Notifies the user of new alerts, and of what the user waits for.

    Args:
        stack: Shows the dialog and notices.
        session: What is waited for.
        settings: How to notify the user of new alerts.
        write: Sends escape sequences to the terminal.
    """

    def __init__(
        self, stack: ScreenStack, session: AppSession, settings: NotifySettings, write: Callable[[str], object]
    ) -> None:
        self._stack = stack
        self._session = session
        self._settings = settings
        self._write = write
        session.waits.report = self.report_true
        session.jobs.ring = self.report_hang
        session.notifier.show = self.notify_terminal

    def choose(self) -> None:
        """Ask what to wait for: of the GPU and the process that the screen shows or has selected."""
        from gpumon.ui.screens.choice import NotifyWhenDialog  # few sessions need it

        screen, frame, waits = self._stack.screen, self._session.store.frame, self._session.waits
        if isinstance(screen, ViewScreen) and frame is not None:
            device = next((device for device in frame.devices if device.key == screen.device_key), None)
            choices = wait_choices(device, screen.selected_process)
            self._stack.push_screen(NotifyWhenDialog(choices, waits.armed, frame), self._arm)

    def report_true(self, sentence: str) -> None:
        """Ring the bell, and show what came true."""
        self.notify_terminal(sentence, always_rings=True)
        self._stack.notify(sentence, title="Notify me when …", timeout=_NOTICE_SECONDS, markup=False)

    def report_hang(self, sentence: str) -> None:
        """Ring the bell, and show which training job hangs."""
        self.notify_terminal(sentence, always_rings=True)
        self._stack.notify(sentence, severity="error", timeout=_NOTICE_SECONDS, markup=False)

    def notify_terminal(self, text: str, *, always_rings: bool = False) -> None:
        """Ring the bell of the terminal, and let it notify its user.

        Args:
            text: The notification.
            always_rings: Ring the bell even if the settings do not ask for it.
        """
        bell, terminal, _ = self._settings
        self._write(notice_sequence(text, bell=bell or always_rings, terminal=terminal, environment=os.environ))

    def _arm(self, choices: Sequence[WaitChoice] | None) -> None:
        if choices is not None:
            self._session.waits.arm(choices)


def notice_sequence(text: str, *, bell: bool, terminal: str, environment: Mapping[str, str]) -> str:
    """What to write to the terminal for a notification.

    Args:
        text: One sentence.
        bell: Whether to ring the bell.
        terminal: ``osc9`` (iTerm2, kitty, WezTerm, Windows Terminal), ``osc777`` (rxvt, foot, Ghostty), or empty.
        environment: Variables of the environment: tmux passes on only what is wrapped.
    """
    safe = safe_text(text)
    sequence = ""
    if terminal == "osc9":
        sequence = f"{_ESCAPE}]9;gpumon: {safe}{_BELL}"
    elif terminal == "osc777":
        sequence = f"{_ESCAPE}]777;notify;gpumon;{safe.replace(';', ',')}{_BELL}"
    if sequence and environment.get("TMUX"):
        sequence = f"{_ESCAPE}Ptmux;{sequence.replace(_ESCAPE, _ESCAPE * 2)}{_ESCAPE}\\"
    return f"{sequence}{_BELL if bell else ''}"
