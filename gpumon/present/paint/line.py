"""A line of a screen as data: spans of text, each with a role. Lines are compared to find which rows changed."""

from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from textwrap import wrap
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size

from gpumon.core.text import ELLIPSIS
from gpumon.core.units import MISSING

_MIN_WRAP_WIDTH: Final = 20
_MAX_WIDTHS: Final = 512
"""Number of cached widths: most texts of a screen are those of the frame before."""


class Role(Enum):
    """The meaning of a piece of text. A theme gives each role its style; no meaning depends on color alone."""

    __hash__ = object.__hash__  # that of Enum is a call in Python for every lookup of a style or of a cached cell

    PLAIN = "plain"
    DIM = "dim"
    HEADING = "heading"
    ACCENT = "accent"
    WARNING = "warning"
    ERROR = "error"
    BRAND = "brand"
    """The tab of the screen in front, and the name of the program."""
    GRID = "grid"
    """Grid lines, axes and the empty part of a bar."""
    CURSOR = "cursor"
    """The moment under the cursor of a chart."""
    LOAD_LOW = "load-low"
    LOAD_MEDIUM = "load-medium"
    LOAD_HIGH = "load-high"
    GPU_HISTORY = "gpu-history"
    """GPU utilization, in every chart."""
    MEMORY_HISTORY = "memory-history"
    """Device memory, in every chart."""
    POWER = "power"
    TEMPERATURE = "temperature"
    CLOCK = "clock"
    ACTIVITY = "activity"
    """SM, tensor and DRAM activity."""
    LINK = "link"
    """PCIe and NVLink throughput."""
    SERIES_1 = "series-1"
    """One of several processes or GPUs in one bar or chart; always together with a glyph or a label."""
    SERIES_2 = "series-2"
    SERIES_3 = "series-3"
    SERIES_4 = "series-4"
    SERIES_5 = "series-5"
    SERIES_6 = "series-6"
    SERIES_7 = "series-7"
    SERIES_8 = "series-8"


SERIES_ROLES: Final = tuple(role for role in Role if role.value.startswith("series-"))
"""Roles that distinguish members of a group, in order."""


class Span(NamedTuple):
    """A piece of text and its role."""

    text: str
    role: Role = Role.PLAIN


Line = tuple[Span, ...]


def line(*parts: str | Span) -> Line:
    """A line of plain strings and spans. Adjacent spans of one role become one, since each style change costs bytes."""
    return merged(part if isinstance(part, Span) else Span(part) for part in parts)


def section_heading(text: str, width: int) -> Line:
    """The heading of a section, over the complete width."""
    return line(Span(f" {text}".ljust(width), Role.HEADING))


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


def dim_if_missing(text: str) -> Span:
    """A text, dim if it stands for a missing value."""
    return Span(text, Role.DIM if text == MISSING else Role.PLAIN)


def clipped(text: str, width: int) -> str:
    """The text in at most ``width`` cells, wide characters counted as the terminal does; a cut text ends in "…"."""
    if width_of(text) <= width:
        return text
    if width < 1:
        return ""
    kept = set_cell_size(text, width - 1)
    return kept.rstrip() if kept.rstrip().endswith(ELLIPSIS) else kept + ELLIPSIS


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


@lru_cache(maxsize=_MAX_WIDTHS)
def width_of(text: str) -> int:
    """Cells that a text occupies in a terminal."""
    return len(text) if text.isascii() else cell_len(text)


def plain(spans: Line) -> str:
    """The text of a line without its roles."""
    return "".join(span.text for span in spans)


class CellRange(NamedTuple):
    """The cells of a line from ``begin`` up to, but not including, ``end``."""

    begin: int
    end: int


def changed_ranges(before: Line, after: Line) -> list[CellRange]:
    """The cells of a line that differ from what was there before, from left to right; empty for equal lines.

    Each change of style costs bytes, so what is sent begins and ends at spans: a span that stands where it stood, with
    the same text and role, need not be sent again.
    """
    if before == after:
        return []
    shared = end = 0
    for one, other in zip(before, after):  # noqa: B905 - up to the end of the shorter one
        if one != other:
            break
        shared, end = shared + 1, end + width_of(one.text)
    old, old_end = {}, end
    for span in before[shared:]:
        old[old_end] = span
        old_end += width_of(span.text)
    ranges: list[CellRange] = []
    for span in after[shared:]:
        begin, end = end, end + width_of(span.text)
        previous = old.get(begin)
        if previous == span:
            continue
        first, last = (begin, end) if previous is None else _changed_cells(begin, previous, span)
        if ranges and ranges[-1].end == first:
            ranges[-1] = CellRange(ranges[-1].begin, last)
        else:
            ranges.append(CellRange(first, last))
    if old_end > end:
        ranges.append(CellRange(end, old_end))
    return ranges


def _changed_cells(begin: int, before: Span, after: Span) -> CellRange:
    """The cells of a span that changed: those of single characters, where both texts have one cell per character."""
    old, new, width = before.text, after.text, width_of(after.text)
    if before.role is not after.role or len(old) != len(new) or not width_of(old) == len(old) == width:
        return CellRange(begin, begin + width)
    one, other = (int.from_bytes(text.encode("utf-32-le", "surrogatepass"), "little") for text in (old, new))
    bits = one ^ other  # 32 for each character: a comparison of characters in Python would cost more than the rest
    return CellRange(begin + ((bits & -bits).bit_length() - 1) // 32, begin + (bits.bit_length() - 1) // 32 + 1)
