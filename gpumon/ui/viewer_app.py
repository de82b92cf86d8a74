"""The Textual app of `gpumon snapshot` and `gpumon trace`: reads files in a child process, then views them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic

from textual.screen import Screen

from gpumon.core.file_reader import FileReader, ResultT
from gpumon.core.problems import CommandError
from gpumon.present.palette import Palette
from gpumon.ui.base_app import BaseApp
from gpumon.ui.screens.reading import ReadingScreen

if TYPE_CHECKING:
    from gpumon.snapshots.model import Snapshot
    from gpumon.traces.reader import OpenTrace


class ViewerApp(BaseApp, Generic[ResultT]):
    """Shows the progress of reading files, then their screen.

    Args:
        kind: What the files are, for the title.
        readers: The readers of the files.
        screen_of: Makes the screen that shows what was read.
        legend: What the help explains in addition to the keys.
        theme: Name of the theme.
        user_palettes: The colors of the user's themes.
    """

    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self,
        kind: str,
        readers: Sequence[FileReader[ResultT]],
        screen_of: Callable[[list[ResultT]], Screen[None]],
        *,
        legend: str,
        theme: str = "dark",
        user_palettes: Sequence[Palette] = (),
    ) -> None:
        super().__init__(theme, user_palettes)
        self.title = f"gpumon {kind.lower()}"
        self._screen_of = screen_of
        self._legend = legend
        self._reading = ReadingScreen(kind, readers, self._show)

    def on_mount(self) -> None:
        """Start to read."""
        self.push_screen(self._reading)

    def legend(self) -> str:
        return self._legend

    def stop_reading(self) -> None:
        """End the child process that reads a file, if there is one."""
        self._reading.stop()

    def _show(self, outcome: list[ResultT] | CommandError) -> None:
        if isinstance(outcome, CommandError):
            self.failure = outcome
            self.exit()
        else:
            self.switch_screen(self._screen_of(outcome))


def snapshot_app(
    paths: Sequence[Path], theme: str = "dark", user_palettes: Sequence[Palette] = ()
) -> "ViewerApp[Snapshot]":
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

    return ViewerApp(
        "Snapshot", readers, screen_of, legend=SnapshotScreen.LEGEND, theme=theme, user_palettes=user_palettes
    )


def trace_app(
    paths: Sequence[Path], theme: str = "dark", user_palettes: Sequence[Palette] = ()
) -> "ViewerApp[OpenTrace]":
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

    readers = [TraceReader(path) for path in paths]
    return ViewerApp("Trace", readers, TraceScreen, legend=TraceScreen.LEGEND, theme=theme, user_palettes=user_palettes)
