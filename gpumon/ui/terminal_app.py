"""What the apps of gpumon share: their themes, and an end that leaves the terminal and one sentence."""

from typing import Final

from textual.app import App

THEMES: Final = {"dark": "textual-dark", "light": "textual-light", "ansi": "ansi-dark"}


class TerminalApp(App[None]):
    """An app that `gpumon.ui.terminal` runs.

    Attributes:
        failure: What ended it, if it was an exception.
    """

    def __init__(self, theme: str) -> None:
        """Takes a key of `THEMES`."""
        super().__init__()
        self.failure: Exception | None = None
        self.theme = THEMES[theme]

    def action_theme(self) -> None:
        names = list(THEMES.values())
        self.theme = names[(names.index(self.theme) + 1) % len(names)] if self.theme in names else names[0]

    def _fatal_error(self) -> None:
        """Ends without Textual's page-long traceback; the command line says what happened."""
        self.failure = self._exception if isinstance(self._exception, Exception) else OSError("the terminal is broken")
        self._close_messages_no_wait()

    def panic(self, *_: object) -> None:
        """Textual's other way of dying: errors that print themselves, and keys that cannot be read any more."""
        self._fatal_error()
