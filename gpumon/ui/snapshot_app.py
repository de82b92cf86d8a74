"""The Textual app of `gpumon snapshot`: reads the files, then shows them."""

from collections.abc import Sequence
from pathlib import Path

from textual.screen import Screen

from gpumon.present.palette import Palette
from gpumon.snapshots.model import Snapshot
from gpumon.snapshots.reader import SnapshotReader
from gpumon.ui import terminal
from gpumon.ui.reading_app import ReadingApp
from gpumon.ui.screens.snapshot import SnapshotScreen
from gpumon.ui.screens.snapshot_help import SNAPSHOT_LEGEND


class SnapshotApp(ReadingApp[Snapshot]):
    """Shows one snapshot, or the changes from the first to the second.

    Args:
        paths: One or two files.
        theme: Name of the theme.
        user_palettes: The colors of the user's themes.

    Raises:
        CommandError: A file does not exist or cannot be opened.
    """

    TITLE = "gpumon snapshot"
    LEGEND = SNAPSHOT_LEGEND

    def __init__(self, paths: Sequence[Path], theme: str = "dark", user_palettes: Sequence[Palette] = ()) -> None:
        super().__init__("Snapshot", [SnapshotReader(path) for path in paths], theme, user_palettes)

    def screen_of(self, results: list[Snapshot]) -> Screen[None]:
        """The last snapshot, compared with the one before it if there are two."""
        *earlier, shown = results
        return SnapshotScreen(shown, earlier[0] if earlier else None)


def run(file: Path, file2: Path | None, theme: str, user_palettes: Sequence[Palette], *, mouse: bool) -> int:
    """Run the app and return the exit code.

    Raises:
        CommandError: A file does not exist or cannot be read.
    """
    app = SnapshotApp([file] if file2 is None else [file, file2], theme, user_palettes)
    return terminal.run(app, app.stop_reading, mouse=mouse)
