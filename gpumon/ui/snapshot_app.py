"""The Textual app of `gpumon snapshot`: reads the files, then shows them."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType
from textual.screen import Screen

from gpumon.core.problems import CommandError
from gpumon.present.palette import Palette
from gpumon.snapshots.model import Snapshot
from gpumon.snapshots.reader import SnapshotReader
from gpumon.ui import terminal
from gpumon.ui.bindings import TERMINAL_BINDINGS
from gpumon.ui.screens.help import HelpScreen
from gpumon.ui.screens.reading import ReadingScreen
from gpumon.ui.screens.snapshot import SnapshotScreen
from gpumon.ui.screens.snapshot_help import SNAPSHOT_LEGEND
from gpumon.ui.terminal_app import TerminalApp


class SnapshotApp(TerminalApp):
    """Shows one snapshot, or the changes from the first to the second.

    Args:
        paths: One or two files.
        theme: Name of the theme.
        user_palettes: The colors of the user's themes.

    Raises:
        CommandError: A file does not exist or cannot be opened.
    """

    TITLE = "gpumon snapshot"
    CSS_PATH = Path(__file__).with_name("gpumon.tcss")
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [*TERMINAL_BINDINGS]

    def __init__(self, paths: Sequence[Path], theme: str = "dark", user_palettes: Sequence[Palette] = ()) -> None:
        super().__init__(theme, user_palettes)
        self._reading = ReadingScreen("Snapshot", [SnapshotReader(path) for path in paths], self._show)

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
        self.push_screen(HelpScreen(self.screen, SNAPSHOT_LEGEND))

    def _show(self, outcome: list[Snapshot] | CommandError) -> None:
        if isinstance(outcome, CommandError):
            self.failure = outcome
            self.exit()
        else:
            *earlier, shown = outcome
            self.switch_screen(SnapshotScreen(shown, earlier[0] if earlier else None))


def run(file: Path, file2: Path | None, theme: str, user_palettes: Sequence[Palette], *, mouse: bool) -> int:
    """Run the app and return the exit code.

    Raises:
        CommandError: A file does not exist or cannot be read.
    """
    app = SnapshotApp([file] if file2 is None else [file, file2], theme, user_palettes)
    return terminal.run(app, app.stop_reading, mouse=mouse)
