"""A line of a screen as data: spans of text, each with a role. Lines are compared to find which rows changed."""

from collections.abc import Iterable
from enum import Enum
from textwrap import wrap
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size

from gpumon.core.text import ELLIPSIS

_MIN_WRAP_WIDTH: Final = 20


class Role(Enum):
    """The meaning of a piece of text. A theme gives each role its style; no meaning depends on color alone."""

    PLAIN = "plain"
    DIM = "dim"
    HEADING = "heading"
    ACCENT = "accent"
    WARNING = "warning"
    ERROR = "error"
    GPU_HISTORY = "gpu-history"
    MEMORY_HISTORY = "memory-history"


class Span(NamedTuple):
    """A piece of text and its role."""

    text: str
    role: Role = Role.PLAIN


Line = tuple[Span, ...]


def line(*parts: str | Span) -> Line:
    """A line of plain strings and spans. Adjacent spans of one role become one, since each style change costs bytes."""
    return merged(part if isinstance(part, Span) else Span(part) for part in parts)


def merged(spans: Iterable[Span]) -> Line:
    """The spans without empty ones, with adjacent spans of one role joined."""
    result: list[Span] = []
    for span in spans:
        if not span.text:
            continue
        if result and result[-1].role is span.role:
            result[-1] = Span(result[-1].text + span.text, span.role)
        else:
            result.append(span)
    return tuple(result)


def clipped(text: str, width: int) -> str:
    """The text in at most ``width`` cells, wide characters counted as the terminal does; a cut text ends in "…"."""
    if width_of(text) <= width:
        return text
    return set_cell_size(text, width - 1) + ELLIPSIS if width > 0 else ""


def cut(spans: Iterable[Span], width: int) -> Line:
    """A line of several roles in at most ``width`` cells; a cut line ends in "…"."""
    result: list[Span] = []
    for text, role in spans:
        piece = clipped(text, width)
        result.append(Span(piece, role))
        width -= width_of(piece)
        if piece != text:
            break
    return merged(result)


def wrapped(text: str, width: int, *, breaks_words: bool = True) -> list[str]:
    """The lines of a text, with long lines broken. Indentation is kept, as in code and tracebacks.

    Args:
        text: The text.
        width: Cells of a line.
        breaks_words: Whether a word longer than a line is broken.
    """
    lines: list[str] = []
    for text_line in text.splitlines():
        indent = text_line[: len(text_line) - len(text_line.lstrip())]
        room = max(_MIN_WRAP_WIDTH, width)
        indent = indent[: room // 2]
        lines += wrap(
            text_line, room, subsequent_indent=indent, break_on_hyphens=False, break_long_words=breaks_words
        ) or [""]
    return lines


def width_of(text: str) -> int:
    """Cells that a text occupies in a terminal."""
    return len(text) if text.isascii() else cell_len(text)


def plain(spans: Line) -> str:
    """The text of a line without its roles."""
    return "".join(span.text for span in spans)


def changed_width(before: Line, after: Line) -> int:
    """Cells from the left up to the last one that differs; 0 for equal lines.

    A line is sent to the terminal from its left end, so cells at the right that are equal need not be sent.
    """
    if before == after:
        return 0
    if [(width_of(text), role) for text, role in before] != [(width_of(text), role) for text, role in after]:
        return max(width_of(plain(before)), width_of(plain(after)))
    last = max(index for index, (old, new) in enumerate(zip(before, after, strict=True)) if old != new)
    old, new = before[last].text, after[last].text
    if old.isascii() and new.isascii():
        new = new[: 1 + max(index for index, (one, other) in enumerate(zip(old, new, strict=True)) if one != other)]
    return width_of(plain(after[:last]) + new)
