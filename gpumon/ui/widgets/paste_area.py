"""A text area for pasted logs of up to several megabytes."""

import re
from collections.abc import Iterator
from typing import Final

from textual import events
from textual.widgets import TextArea

from gpumon.core.text import safe_text

MAX_CHARACTERS: Final = 8 << 20
"""Pasted text beyond this length is dropped; ``gpumon explain FILE`` reads a file of any size."""
_MAX_LINE: Final = 4096
"""Characters per line: Textual renders a line at once. A longer line continues on the next one, as on a terminal."""
_TAB_CELLS: Final = 8
_COLORS: Final = re.compile(r"\x1b\[[0-9;:]*m")


class PasteArea(TextArea):
    """Accepts text from outside: removes colors, replaces control characters, and limits the length."""

    def __init__(self, text: str, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(harmless(text), id=id, soft_wrap=False, compact=True, highlight_cursor_line=False)
        self.cursor_blink = False  # a blinking cursor sends bytes while nothing changes

    def on_paste(self, event: events.Paste) -> None:
        """Cleans the text before Textual's own handler, which runs next, inserts it."""
        event.text = harmless(event.text)

    def on_unmount(self) -> None:
        """Remove the watcher that Textual adds to the app and never removes; it would keep the text in memory."""
        watchers = getattr(self.app, "__watchers", {}).get("theme", [])
        watchers[:] = [(node, callback) for node, callback in watchers if node is not self]


def harmless(text: str) -> str:
    """The text without colors and control characters; tabs become spaces, so that indentation is kept."""
    return "\n".join(_lines(_COLORS.sub("", text[:MAX_CHARACTERS]).expandtabs(_TAB_CELLS)[:MAX_CHARACTERS]))


def _lines(text: str) -> Iterator[str]:
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        for start in range(0, max(1, len(line)), _MAX_LINE):
            yield safe_text(line[start : start + _MAX_LINE], _MAX_LINE)
