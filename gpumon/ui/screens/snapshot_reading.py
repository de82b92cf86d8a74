"""How far the reading of a snapshot is; it can be given up."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Footer

from gpumon.core.exits import CommandError
from gpumon.core.units import bytes_text
from gpumon.snapshots.model import Snapshot
from gpumon.snapshots.reading import Progress, Reading
from gpumon.ui.paint.bar import progress_bar
from gpumon.ui.paint.line import Line, Role, Span, clipped, line
from gpumon.ui.screens.drawn import SteadyScreen
from gpumon.ui.view.snapshot import seconds_text
from gpumon.ui.widgets.text_line import TextLines

_BAR: Final = 40
_TICK_SECONDS: Final = 0.5

Then = Callable[["list[Snapshot] | CommandError"], None]


class SnapshotReadingScreen(SteadyScreen[None]):
    """Reads files one after the other.

    Args:
        paths: The files.
        then: Is called with what they hold, or with why one of them cannot be read.

    Raises:
        CommandError: One of them is not there, or may not be read.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,ctrl+c", "app.quit", "Give up", id="reading.quit", tooltip="Leave; nothing is kept"),
    ]

    class News(Message):
        """The reader has told something."""

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, SnapshotReadingScreen.News)

    def __init__(self, paths: Sequence[Path], then: Then) -> None:
        super().__init__()
        self._waiting = [Reading(path) for path in paths]
        self._then = then
        self._found: list[Snapshot] = []
        self._reading: Reading | None = None
        self._name = ""
        self._progress = Progress(0, 0, 0.0)

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield TextLines(id="progress")
        yield Footer()

    def on_mount(self) -> None:
        """Begins with the first file."""
        self.set_interval(_TICK_SECONDS, self._tick)
        self._next()

    def on_unmount(self) -> None:
        """Nobody waits any more."""
        self.stop()

    def stop(self) -> None:
        """Gives up the file that is read; that it was given up is no news."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()

    def on_resize(self, _: events.Resize) -> None:
        self._draw()

    def on_snapshot_reading_screen_news(self) -> None:
        """Takes what was told."""
        reading = self._reading
        if reading is None:
            return
        for progress in reading.inbox.drain():
            self._progress = progress
        outcome = reading.outcome
        if isinstance(outcome, CommandError):
            self._end(outcome)
        elif outcome is not None:
            self._found.append(outcome)
            self._next()
        else:
            self._draw()

    def _next(self) -> None:
        if not self._waiting:
            self._end(self._found)
            return
        self._reading = reading = self._waiting.pop(0)
        self._name = reading.name
        try:
            reading.start()
        except CommandError as error:
            self._end(error)
            return
        self._progress = reading.progress
        reading.inbox.on_arrival(self._ring)
        self._draw()

    def _ring(self) -> None:
        self.post_message(self.News())

    def _end(self, outcome: "list[Snapshot] | CommandError") -> None:
        self._reading = None
        self._then(outcome)

    def _tick(self) -> None:
        """The time goes on even where no more of the file is read."""
        if self._reading is not None:
            self._progress = self._progress._replace(seconds=self._reading.progress.seconds)
            self._draw()

    def _draw(self) -> None:
        width = self.size.width
        title = clipped(f" Snapshot  {self._name}", width).ljust(width)
        with self.app.batch_update():
            self.query_one("#title", TextLines).show([line(Span(title, Role.HEADING))])
            self.query_one("#progress", TextLines).show(progress_lines(self._progress, width))


def progress_lines(progress: Progress, width: int) -> list[Line]:
    """How far it is, as a bar and in figures."""
    share = progress.read_bytes / progress.size_bytes if progress.size_bytes else 0.0
    bar = progress_bar(share, max(1, min(_BAR, width - 4)))
    read = f"{bytes_text(progress.read_bytes)} of {bytes_text(progress.size_bytes)} read"
    what = "following its history" if progress.read_bytes >= progress.size_bytes else read
    return [
        (),
        line("  ", Span(bar, Role.MEMORY_HISTORY)),
        (),
        line(clipped(f"  {what}, {seconds_text(int(progress.seconds))}", width)),
    ]
