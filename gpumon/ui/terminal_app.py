"""Common parts of gpumon's apps: themes, screenshots, redrawing, and an end that restores the terminal."""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from textual.app import App, SystemCommand
from textual.screen import Screen

from gpumon.jobs.results import results_file
from gpumon.session.background import run_in_background
from gpumon.ui import textual_fixes  # noqa: F401 - the import applies them

THEMES: Final = {"dark": "textual-dark", "light": "textual-light", "ansi": "ansi-dark"}
_UNSUPPORTED_COMMANDS: Final = {"Maximize", "Minimize", "Screenshot"}
"""Commands of Textual's palette that do not work here, or that gpumon replaces."""
_PALETTE_CLOSE_SECONDS: Final = 0.1


class TerminalApp(App[None]):
    """An app that `gpumon.ui.terminal` runs.

    Attributes:
        failure: The exception that ended it, if there was one.
    """

    def __init__(self, theme: str) -> None:
        """Take a key of `THEMES`."""
        super().__init__()
        self.failure: Exception | None = None
        self.theme = THEMES[theme]

    def action_theme(self) -> None:
        names = list(THEMES.values())
        self.theme = names[(names.index(self.theme) + 1) % len(names)] if self.theme in names else names[0]

    def action_redraw(self) -> None:
        self.refresh(layout=True)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The commands of Textual's palette that work here, and gpumon's screenshot."""
        for command in super().get_system_commands(screen):
            if command.title not in _UNSUPPORTED_COMMANDS:
                yield command
        yield SystemCommand("Screenshot", "Save a picture of the screen as an SVG file", self._screenshot_soon)

    def action_screenshot(self, filename: str | None = None, path: str | None = None) -> None:
        name = filename or f"gpumon-{time.strftime('%Y%m%d-%H%M%S')}.svg"
        save = partial(save_screenshot, self.export_screenshot(), name, None if path is None else Path(path))
        run_in_background(save, self._report_screenshot, self.call_later)

    def _screenshot_soon(self) -> None:
        """Take the screenshot once the palette has closed."""
        self.set_timer(_PALETTE_CLOSE_SECONDS, self.action_screenshot)

    def _report_screenshot(self, result: Path | OSError) -> None:
        if isinstance(result, OSError):
            reason = result.strerror or result
            self.notify(f"The screenshot could not be saved: {reason}.", severity="error", markup=False)
        else:
            self.notify(f"Saved {result}", markup=False)

    def _fatal_error(self) -> None:
        """End without Textual's page-long traceback; the command line reports the failure."""
        self.failure = self._exception if isinstance(self._exception, Exception) else OSError("the terminal is broken")
        self._close_messages_no_wait()

    def panic(self, *_: object) -> None:
        """End as `_fatal_error` does: Textual calls this for errors that print themselves and when its input ends."""
        self._fatal_error()


def save_screenshot(svg: str, name: str, folder: Path | None = None) -> Path | OSError:
    """Write a screenshot to a folder; returns the file, or why it could not be written.

    Args:
        svg: The picture.
        name: Name of the file.
        folder: The folder; by default the user's folder for downloads, or gpumon's state folder if there is none.
    """
    failure = OSError("no folder")
    for candidate in _screenshot_folders() if folder is None else (folder,):
        try:
            candidate.mkdir(parents=True, exist_ok=True, mode=0o700)
            (candidate / name).write_text(svg, encoding="utf-8")
        except OSError as error:
            failure = error
        else:
            return candidate / name
    return failure


def _screenshot_folders() -> Iterator[Path]:
    from platformdirs import user_downloads_path  # a requirement of Textual; late, because few sessions need it

    with suppress(RuntimeError):  # a user may have no home
        downloads = user_downloads_path()
        if downloads.is_dir():
            yield downloads
        yield results_file().parent
