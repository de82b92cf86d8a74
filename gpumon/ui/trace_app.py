"""The Textual app of `gpumon trace`: reads the files, then shows them."""

from collections.abc import Sequence
from pathlib import Path

from textual.screen import Screen

from gpumon.present.palette import Palette
from gpumon.traces.reader import OpenTrace, TraceReader
from gpumon.ui import terminal
from gpumon.ui.reading_app import ReadingApp
from gpumon.ui.screens.trace import TraceScreen
from gpumon.ui.screens.trace_help import TRACE_LEGEND


class TraceApp(ReadingApp[OpenTrace]):
    """Shows the traces of one or several ranks.

    Args:
        paths: The files.
        theme: Name of the theme.
        user_palettes: The colors of the user's themes.

    Raises:
        CommandError: A file does not exist or cannot be opened.
    """

    TITLE = "gpumon trace"
    LEGEND = TRACE_LEGEND

    def __init__(self, paths: Sequence[Path], theme: str = "dark", user_palettes: Sequence[Palette] = ()) -> None:
        super().__init__("Trace", [TraceReader(path) for path in paths], theme, user_palettes)

    def screen_of(self, results: list[OpenTrace]) -> Screen[None]:
        """The account of the traces."""
        return TraceScreen(results)


def run(files: Sequence[Path], theme: str, user_palettes: Sequence[Palette], *, mouse: bool) -> int:
    """Run the app and return the exit code.

    Raises:
        CommandError: A file does not exist or cannot be read.
    """
    app = TraceApp(files, theme, user_palettes)
    return terminal.run(app, app.stop_reading, mouse=mouse)
