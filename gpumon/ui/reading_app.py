"""The Textual app of a command that reads files in a child process and then shows them."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from textual.binding import BindingType
from textual.screen import Screen

from gpumon.core.file_reader import FileReader
from gpumon.core.problems import CommandError
from gpumon.present.palette import Palette
from gpumon.ui.bindings import TERMINAL_BINDINGS
from gpumon.ui.screens.help import HelpScreen
from gpumon.ui.screens.reading import ReadingScreen
from gpumon.ui.terminal_app import TerminalApp

ResultT = TypeVar("ResultT")


class ReadingApp(TerminalApp, Generic[ResultT]):
    """Shows the progress of reading files, then their screen.

    Args:
        kind: What the files are, for the title.
        readers: The readers of the files.
        theme: Name of the theme.
        user_palettes: The colors of the user's themes.
    """

    LEGEND: ClassVar[str] = ""
    """Explanations of the help in addition to the keys."""
    CSS_PATH = Path(__file__).with_name("gpumon.tcss")
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [*TERMINAL_BINDINGS]

    def __init__(
        self, kind: str, readers: Sequence[FileReader[ResultT]], theme: str, user_palettes: Sequence[Palette]
    ) -> None:
        super().__init__(theme, user_palettes)
        self._reading = ReadingScreen(kind, readers, self._show)

    def screen_of(self, results: list[ResultT]) -> Screen[None]:
        """The screen that shows what was read."""
        raise NotImplementedError

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
        self.push_screen(HelpScreen(self.screen, self.LEGEND))

    def _show(self, outcome: list[ResultT] | CommandError) -> None:
        if isinstance(outcome, CommandError):
            self.failure = outcome
            self.exit()
        else:
            self.switch_screen(self.screen_of(outcome))
