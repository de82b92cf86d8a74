"""A field to paste a log into, of several megabytes if need be."""

import re
from collections.abc import Iterator
from typing import Final

from textual import events
from textual.widgets import TextArea

from gpumon.core.text import safe_text

MOST_CHARACTERS: Final = 8 << 20
"""What is pasted beyond this is left out; ``gpumon explain FILE`` reads a file of any size."""
_LONGEST_LINE: Final = 4096
"""Textual draws a line as a whole; a longer one goes on in the next, as on a terminal."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;:]*m")


class PasteArea(TextArea):
    """Takes text from outside: without colours, control characters made visible, and not without end.

    Args:
        text: What stands in it at first.
        id: The widget's id.
    """

    def __init__(self, text: str, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(harmless(text), id=id, soft_wrap=False, compact=True, highlight_cursor_line=False)
        self.cursor_blink = False  # nothing is sent while nothing changes

    def on_paste(self, event: events.Paste) -> None:
        """Textual's own handler, which comes after this one, puts in what is left."""
        event.text = harmless(event.text)


def harmless(text: str) -> str:
    """The text as it can be shown."""
    return "\n".join(_pieces(_COLOURS.sub("", text[:MOST_CHARACTERS])))


def _pieces(text: str) -> Iterator[str]:
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        for start in range(0, max(1, len(line)), _LONGEST_LINE):
            yield safe_text(line[start : start + _LONGEST_LINE], _LONGEST_LINE)
