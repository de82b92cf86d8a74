"""The screen that shows the progress of reading files in children, and cancels it."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Generic

from textual import events
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen

from gpumon.core.file_reader import FileReader, Progress, ResultT
from gpumon.core.problems import CommandError
from gpumon.core.units import age_text, bytes_text, counted
from gpumon.present.paint.bar import progress_bar
from gpumon.present.paint.line import Line, Role, Span, clipped, line
from gpumon.ui.keymap import Bindings, key
from gpumon.ui.screens.base import BaseScreen
from gpumon.ui.widgets.footer import Footer
from gpumon.ui.widgets.text_lines import TextLines

_BAR: Final = 40
_TICK_SECONDS: Final = 0.5


class ReadingScreen(BaseScreen[None], Generic[ResultT]):
    """Reads files one after the other.

    Args:
        kind: What the files are, for the title.
        readers: The readers of the files.
        screen_of: Makes the screen that takes its place, from the results.
    """

    BINDINGS: ClassVar[Bindings] = [key("reading.back", "Cancel", "Cancel reading and quit", "app.quit")]

    class Failed(Message):
        """A file cannot be read."""

        def __init__(self, error: CommandError) -> None:
            super().__init__()
            self.error = error

    class ReaderChanged(Message):
        """The reader has new progress or a result."""

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, ReadingScreen.ReaderChanged)

    def __init__(
        self, kind: str, readers: Sequence[FileReader[ResultT]], screen_of: Callable[[list[ResultT]], Screen[None]]
    ) -> None:
        super().__init__()
        self._kind = kind
        self._readers = list(readers)
        self._screen_of = screen_of
        self._results: list[ResultT] = []
        self._reader: FileReader[ResultT] | None = None
        self._name = ""
        self._progress = Progress(0, 0, 0.0)

    def compose(self) -> ComposeResult:
        yield TextLines(id="title")
        yield TextLines(id="progress")
        yield Footer()

    def on_mount(self) -> None:
        self.set_interval(_TICK_SECONDS, self._tick)
        self._next()

    def on_unmount(self) -> None:
        self.stop()

    def stop(self) -> None:
        """Cancel the current file."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()

    def on_resize(self, _: events.Resize) -> None:
        self._draw()

    def on_screen_resume(self) -> None:
        """Continue when the screen above, such as the help, was closed."""
        self._give_way()

    def _give_way(self) -> None:
        """Show what was read in place of this screen, unless another one is above it or it was closed."""
        if self._results and not self._readers and self._reader is None and self.is_active:
            self.app.switch_screen(self._screen_of(self._results))

    def on_reading_screen_reader_changed(self) -> None:
        """Show the progress, or continue with the next file."""
        reader = self._reader
        if reader is None:
            return
        for progress in reader.inbox.drain():
            self._progress = progress
        outcome = reader.outcome
        if isinstance(outcome, CommandError):
            self._fail(outcome)
        elif outcome is not None:
            self._results.append(outcome)
            self._next()
        else:
            self._draw()

    def _next(self) -> None:
        if not self._readers:
            self._reader = None
            self._give_way()
            return
        self._reader = reader = self._readers.pop(0)
        self._name = reader.name
        try:
            reader.start()
        except CommandError as error:
            self._fail(error)
            return
        self._progress = reader.progress
        reader.inbox.on_arrival(self._ring)
        self._draw()

    def _fail(self, error: CommandError) -> None:
        self._reader = None
        self.post_message(self.Failed(error))

    def _ring(self) -> None:
        self.post_message(self.ReaderChanged())

    def _tick(self) -> None:
        """Update the elapsed time, even while no bytes are read."""
        if self._reader is not None:
            self._progress = self._progress._replace(seconds=self._reader.progress.seconds)
            self._draw()

    def _draw(self) -> None:
        width = self.size.width
        title = clipped(f" {self._kind}  {self._name}", width).ljust(width)
        with self.app.batch_update():
            self._lines("title").show([line(Span(title, Role.HEADING))])
            self._lines("progress").show(progress_lines(self._progress, width))


def progress_lines(progress: Progress, width: int) -> list[Line]:
    """The progress as a bar and as text."""
    share = progress.read_bytes / progress.size_bytes if progress.size_bytes else 0.0
    bar = progress_bar(share, max(1, min(_BAR, width - 4)))
    read = f"{bytes_text(progress.read_bytes)} of {bytes_text(progress.size_bytes)} read"
    step = "evaluating" if progress.read_bytes >= progress.size_bytes else read
    return [
        (),
        line("  ", Span(bar, Role.MEMORY_HISTORY)),
        (),
        line(clipped(f"  {step}, {age_text(int(progress.seconds))}", width)),
        *(line(clipped(f"  {counted(count, noun)}", width)) for noun, count in progress.counts),
    ]
