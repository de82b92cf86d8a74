"""The Textual app of `gpumon snapshot`: reads the files, then shows them."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen

from gpumon.core.problems import CommandError
from gpumon.snapshots.model import Snapshot
from gpumon.ui import terminal
from gpumon.ui.screens.snapshot import SnapshotScreen
from gpumon.ui.screens.snapshot_help import SnapshotHelpScreen
from gpumon.ui.screens.snapshot_reading import SnapshotReadingScreen
from gpumon.ui.terminal_app import TerminalApp


class SnapshotApp(TerminalApp):
    """Shows one snapshot, or the changes from the first to the second.

    Args:
        paths: One or two files.
        theme: A key of `THEMES`.

    Raises:
        CommandError: A file does not exist or cannot be opened.
    """

    TITLE = "gpumon snapshot"
    CSS_PATH = Path(__file__).with_name("gpumon.tcss")
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1", "help", "Help", id="help", tooltip="Keys and terms"),
        Binding("q,ctrl+c", "quit", "Quit", id="quit", tooltip="Quit gpumon"),
        Binding("t", "theme", "Theme", show=False, id="theme", tooltip="Next theme: dark, light, ansi"),
        Binding("ctrl+z", "suspend_process", "Suspend", id="suspend", show=False, tooltip="Suspend; fg resumes gpumon"),
    ]

    def __init__(self, paths: Sequence[Path], theme: str = "dark") -> None:
        super().__init__(theme)
        self._reading = SnapshotReadingScreen(paths, self._show)

    def on_mount(self) -> None:
        """Open the first screen."""
        self.push_screen(self.first_screen())

    def first_screen(self) -> Screen[None]:
        """The screen that shows the progress of reading."""
        return self._reading

    def stop_reading(self) -> None:
        """End the child process that reads a file, if there is one."""
        self._reading.stop()

    def action_help(self) -> None:
        self.push_screen(SnapshotHelpScreen())

    def _show(self, outcome: list[Snapshot] | CommandError) -> None:
        if isinstance(outcome, CommandError):
            self.failure = outcome
            self.exit()
        else:
            *earlier, shown = outcome
            self.switch_screen(SnapshotScreen(shown, earlier[0] if earlier else None))


def run(file: Path, file2: Path | None, theme: str, *, mouse: bool) -> int:
    """Run the app and return the exit code.

    Raises:
        CommandError: A file does not exist or cannot be read.
    """
    app = SnapshotApp([file] if file2 is None else [file, file2], theme)
    return terminal.run(app, app.stop_reading, mouse=mouse)
