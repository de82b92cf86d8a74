"""A few lines of text that repaint only when they change."""

from collections.abc import Sequence

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gpumon.present.paint.line import Line, changed_ranges
from gpumon.ui.widgets.role_styles import RoleStyles


class TextLines(Widget):
    """Lines of text; the height is their number."""

    DEFAULT_CSS = "TextLines { height: 1; width: 1fr; &.-empty { display: none; } }"

    def __init__(self, *, id: str | None = None, classes: str = "") -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id, classes=f"-empty {classes}")
        self._lines: list[Line] = []
        self._role_styles = RoleStyles(self)

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

    def render_line(self, y: int) -> Strip:
        line = self._lines[y] if y < len(self._lines) else ()
        return self._role_styles.strip(line, self.size.width)

    def notify_style_update(self) -> None:
        self._role_styles.clear()
        super().notify_style_update()
