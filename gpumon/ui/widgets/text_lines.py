"""A few lines of text that repaint only when they change."""

from collections.abc import Sequence

from rich.segment import Segment
from textual.geometry import Region

from gpumon.present.paint.line import Line, changed_ranges
from gpumon.ui.widgets.role_styles import LineWidget


class TextLines(LineWidget):
    """Lines of text; the height is their number."""

    DEFAULT_CSS = "TextLines { height: 1; width: 1fr; &.-empty { display: none; } }"

    def __init__(self, *, id: str | None = None, classes: str = "") -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id, classes=f"-empty {classes}")
        self._lines: list[Line] = []

    @property
    def lines(self) -> Sequence[Line]:
        """The lines that are shown."""
        return self._lines

    def show(self, lines: Sequence[Line]) -> None:
        """Replace the lines."""
        before, self._lines = self._lines, list(lines)
        if len(before) != len(lines):
            self.styles.height = len(lines)
            self.set_class(not lines, "-empty")
            self.refresh(layout=True)
            return
        changed = [
            Region(begin, row, end - begin, 1)
            for row, (old, new) in enumerate(zip(before, lines, strict=True))
            for begin, end in changed_ranges(old, new)
        ]
        if changed:
            self.refresh(*changed)

    def line_segments(self, y: int) -> list[Segment]:
        """A line."""
        return self._role_styles.segments(self._lines[y] if y < len(self._lines) else (), self.size.width)
