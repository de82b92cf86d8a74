"""A line of a screen as data: spans of text, each with the role it plays. Lines are compared to find what changed."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from gpumon.core.text import ELLIPSIS


class Role(Enum):
    """What a piece of text is; a theme gives each role its look, and none is told apart by colour alone."""

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
    """A line of plain strings and spans; neighbours of one role become one span, since each change costs bytes."""
    return merged(part if isinstance(part, Span) else Span(part) for part in parts)


def merged(spans: Iterable[Span]) -> Line:
    """The spans without empty ones, neighbours of one role joined."""
    found: list[Span] = []
    for span in spans:
        if not span.text:
            continue
        if found and found[-1].role is span.role:
            found[-1] = Span(found[-1].text + span.text, span.role)
        else:
            found.append(span)
    return tuple(found)


def clipped(text: str, width: int) -> str:
    """The text in at most ``width`` cells, wide characters counted as the terminal does; a cut one says so."""
    if width_of(text) <= width:
        return text
    return set_cell_size(text, width - 1) + ELLIPSIS if width > 0 else ""


def cut(whole: Iterable[Span], width: int) -> Line:
    """A line of several roles in at most ``width`` cells; one that is cut says so."""
    found: list[Span] = []
    for text, role in whole:
        piece = clipped(text, width)
        found.append(Span(piece, role))
        width -= width_of(piece)
        if piece != text:
            break
    return merged(found)


def width_of(text: str) -> int:
    """Cells that a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def plain(spans: Line) -> str:
    """The line's text alone."""
    return "".join(span.text for span in spans)


def changed_width(before: Line, after: Line) -> int:
    """Cells from the left up to the last one that differs; 0 for equal lines.

    A terminal is sent a line from its left end, so what is equal at the right need not be sent.
    """
    if before == after:
        return 0
    if [(width_of(text), role) for text, role in before] != [(width_of(text), role) for text, role in after]:
        return max(width_of(plain(before)), width_of(plain(after)))
    last = max(place for place, (old, new) in enumerate(zip(before, after, strict=True)) if old != new)
    old, new = before[last].text, after[last].text
    if old.isascii() and new.isascii():
        new = new[: 1 + max(place for place, (one, other) in enumerate(zip(old, new, strict=True)) if one != other)]
    return width_of(plain(after[:last]) + new)
