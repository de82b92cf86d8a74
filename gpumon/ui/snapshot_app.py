"""The app of `gpumon snapshot`: reads the files, then shows them."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen

from gpumon.core.exits import CommandError
from gpumon.snapshots.model import Snapshot
from gpumon.ui import terminal
from gpumon.ui.screens.snapshot import SnapshotScreen
from gpumon.ui.screens.snapshot_help import SnapshotHelpScreen
from gpumon.ui.screens.snapshot_reading import SnapshotReadingScreen
from gpumon.ui.terminal_app import TerminalApp


class SnapshotApp(TerminalApp):
    """Shows one file, or what has changed from the first to the second.

    Args:
        paths: One file or two.
        theme: A key of `THEMES`.

    Raises:
        CommandError: A file is not there, or may not be read.
    """

    TITLE = "gpumon snapshot"
    CSS_PATH = Path(__file__).with_name("gpumon.tcss")
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark,f1", "help", "Help", id="help", tooltip="What the keys do and what the words mean"),
        Binding("q,ctrl+c", "quit", "Quit", id="quit", tooltip="Leave gpumon"),
        Binding("t", "theme", "Theme", show=False, id="theme", tooltip="Next theme: dark, light, ansi"),
        Binding("ctrl+z", "suspend_process", "Suspend", id="suspend", show=False, tooltip="Suspend; fg brings it back"),
    ]

    def __init__(self, paths: Sequence[Path], theme: str = "dark") -> None:
        super().__init__(theme)
        self._reading = SnapshotReadingScreen(paths, self._show)

    def on_mount(self) -> None:
        """Opens the first screen."""
        self.push_screen(self.first_screen())

    def first_screen(self) -> Screen[None]:
        """Reads the files, which takes its time."""
        return self._reading

    def stop_reading(self) -> None:
        """Ends the child that reads, if there is one."""
        self._reading.stop()

    def action_help(self) -> None:
        self.push_screen(SnapshotHelpScreen())

    def _show(self, outcome: list[Snapshot] | CommandError) -> None:
        if isinstance(outcome, CommandError):
            self.failure = outcome
            self.exit()
        else:
            *earlier, found = outcome
            self.switch_screen(SnapshotScreen(found, earlier[0] if earlier else None))


def run(file: Path, file2: Path | None, theme: str, *, mouse: bool) -> int:
    """Opens the screen; returns the exit code when it was left.

    Raises:
        CommandError: A file is not there or cannot be read.
    """
    app = SnapshotApp([file] if file2 is None else [file, file2], theme)
    return terminal.run(app, app.stop_reading, mouse=mouse)
