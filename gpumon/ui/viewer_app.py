"""The Textual app of `gpumon snapshot` and `gpumon trace`: reads files in a child process, then views them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.screen import Screen

from gpumon.present.palette import Palette
from gpumon.ui.base_app import BaseApp
from gpumon.ui.screens.reading import ReadingScreen

if TYPE_CHECKING:
    from gpumon.snapshots.model import Snapshot


class ViewerApp(BaseApp):
    """Shows the progress of reading files, then their screen.

    Args:
        kind: What the files are, for the title.
        first: The first screen: the progress, or what was read already.
        legend: What the help explains in addition to the keys.
        theme: Name of the theme.
        user_palettes: The colors of the user's themes.
    """

    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self, kind: str, first: Screen[None], *, legend: str, theme: str = "dark", user_palettes: Sequence[Palette] = ()
    ) -> None:
        super().__init__(theme, user_palettes)
        self.title = f"gpumon {kind.lower()}"
        self._first = first
        self._legend = legend

    def on_mount(self) -> None:
        self.push_screen(self._first)

    def on_reading_screen_failed(self, message: ReadingScreen.Failed) -> None:
        """End with the error."""
        self.failure = message.error
        self.exit()

    def legend(self) -> str:
        return self._legend

    def stop_reading(self) -> None:
        """End the child process that reads a file, if there is one."""
        if isinstance(self._first, ReadingScreen):
            self._first.stop()


def snapshot_app(paths: Sequence[Path], theme: str = "dark", user_palettes: Sequence[Palette] = ()) -> ViewerApp:
    """The app that shows one snapshot, or the changes from the first to the second.

    Args:
        paths: One or two files.
        theme: Name of the theme.
        user_palettes: The colors of the user's themes.

    Raises:
        CommandError: A file does not exist or cannot be opened.
    """
    from gpumon.snapshots.reader import SnapshotReader  # late: `gpumon trace` does without it
    from gpumon.ui.screens.snapshot import SnapshotScreen

    readers = [SnapshotReader(path) for path in paths]

    def screen_of(snapshots: "list[Snapshot]") -> Screen[None]:
        return SnapshotScreen(*reversed(snapshots))

    reading = ReadingScreen("Snapshot", readers, screen_of)
    return ViewerApp("Snapshot", reading, legend=SnapshotScreen.LEGEND, theme=theme, user_palettes=user_palettes)


def trace_app(paths: Sequence[Path], theme: str = "dark", user_palettes: Sequence[Palette] = ()) -> ViewerApp:
    """The app that shows the traces of one or several ranks.

    Args:
        paths: The files.
        theme: Name of the theme.
        user_palettes: The colors of the user's themes.

    Raises:
        CommandError: A file does not exist or cannot be opened.
    """
    from gpumon.traces.reader import TraceReader  # late: `gpumon snapshot` does without it
    from gpumon.ui.screens.trace import TraceScreen

    reading = ReadingScreen("Trace", [TraceReader(path) for path in paths], TraceScreen)
    return ViewerApp("Trace", reading, legend=TraceScreen.LEGEND, theme=theme, user_palettes=user_palettes)
