"""Text of several lines in a given width."""

from textwrap import wrap
from typing import Final

_LEAST_WIDTH: Final = 20


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a text, those that are too long broken; what is indented stays so, as in code and tracebacks."""
    lines: list[str] = []
    for each in text.splitlines():
        indent = each[: len(each) - len(each.lstrip())]
        room = max(_LEAST_WIDTH, width)
        lines += wrap(each, room, subsequent_indent=indent[: room // 2], break_on_hyphens=False) or [""]
    return lines
