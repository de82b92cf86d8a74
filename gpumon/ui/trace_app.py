"""The Textual app of `gpumon trace`: reads the files, then shows them."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType
from textual.screen import Screen

from gpumon.core.problems import CommandError
from gpumon.present.palette import Palette
from gpumon.traces.reader import OpenTrace, TraceReader
from gpumon.ui import terminal
from gpumon.ui.bindings import TERMINAL_BINDINGS
from gpumon.ui.screens.help import HelpScreen
from gpumon.ui.screens.reading import ReadingScreen
from gpumon.ui.screens.trace import TraceScreen
from gpumon.ui.screens.trace_help import TRACE_LEGEND
from gpumon.ui.terminal_app import TerminalApp


class TraceApp(TerminalApp):
    """Shows the traces of one or several ranks.

    Args:
        paths: The files.
        theme: Name of the theme.
        user_palettes: The colors of the user's themes.

    Raises:
        CommandError: A file does not exist or cannot be opened.
    """

    TITLE = "gpumon trace"
    CSS_PATH = Path(__file__).with_name("gpumon.tcss")
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [*TERMINAL_BINDINGS]

    def __init__(self, paths: Sequence[Path], theme: str = "dark", user_palettes: Sequence[Palette] = ()) -> None:
        super().__init__(theme, user_palettes)
        self._reading = ReadingScreen("Trace", [TraceReader(path) for path in paths], self._show)

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
        self.push_screen(HelpScreen(self.screen, TRACE_LEGEND))

    def _show(self, outcome: list[OpenTrace] | CommandError) -> None:
        if isinstance(outcome, CommandError):
            self.failure = outcome
            self.exit()
        else:
            self.switch_screen(TraceScreen(outcome))


def run(files: Sequence[Path], theme: str, user_palettes: Sequence[Palette], *, mouse: bool) -> int:
    """Run the app and return the exit code.

    Raises:
        CommandError: A file does not exist or cannot be read.
    """
    app = TraceApp(files, theme, user_palettes)
    return terminal.run(app, app.stop_reading, mouse=mouse)
