"""Sanitizes text from outside: process names, command lines, device names, recordings, logs.

Textual and the terminal pass control characters through, so a command line of another user could clear the screen or
set the clipboard. Call `safe_text` where such text enters; after the call the text is plain data.
"""

import re
from collections.abc import Iterator, Sequence

ELLIPSIS = "…"

_UNSAFE = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"  # bidi, zero-width and separator controls
    "\ud800-\udfff"  # surrogates, which no terminal encoding can represent
    "]"
)
_REPLACEMENT = "\ufffd"


def safe_text(text: str, limit: int = 512) -> str:
    """Return ``text`` without control, bidi or surrogate characters, cut to ``limit`` characters.

    Each run of tabs and line breaks becomes one space. Every other unsafe character becomes U+FFFD, so that its
    position stays visible.
    """
    clipped = text[: limit + 1]
    if not (clipped.isascii() and clipped.isprintable()):
        clipped = _UNSAFE.sub(_REPLACEMENT, re.sub(r"[\t\n\v\f\r]+", " ", clipped))
    return clipped if len(clipped) <= limit else clipped[: limit - 1] + ELLIPSIS


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, each column as wide as its longest text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def safe_bytes(data: bytes, limit: int = 512) -> str:
    """Decode ``data`` as UTF-8 and sanitize the text; undecodable bytes become U+FFFD."""
    return safe_text(data[: 4 * (limit + 1)].decode("utf-8", "replace"), limit)
