"""The allocator's segments as maps of their blocks, by pool and stream, with their holes counted."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from gpumon.core.allocator import BlockState, Segment
from gpumon.core.holes import SHARED_POOL, Group, Holes, SegmentLayout, holes_of
from gpumon.core.units import bytes_text
from gpumon.ui.paint.line import Line, Role, Span, clipped, cut, line
from gpumon.ui.widgets.line_table import LaterRow, TableRow

ACTIVE: Final = "█"
PENDING: Final = "▓"
HOLE: Final = "·"
MIXED: Final = "▒"
"""A cell of which at least a sixth is in use and a sixth is free."""

_MIXED_SHARE: Final = 1 / 6
_ROLES: Final = {ACTIVE: Role.MEMORY_HISTORY, MIXED: Role.MEMORY_HISTORY, PENDING: Role.WARNING, HOLE: Role.DIM}
_SIZE_WIDTH: Final = 9
_FIGURES_WIDTH: Final = 3 * (_SIZE_WIDTH + 1) + 1
_LEAST_MAP: Final = 8


def summary_lines(found: SegmentLayout, width: int) -> list[Line]:
    """The segments in figures, and what the glyphs of the maps mean."""
    holes = found.holes
    count = len(found.segments)
    told = [
        Span(f" {count} segment{'' if count == 1 else 's'}, {bytes_text(holes.size)}", Role.ACCENT),
        Span(f"; free {bytes_text(holes.free)}, largest hole {bytes_text(holes.largest)}, "),
        Span(f"fragmentation {holes.fragmentation:.0%}, {bytes_text(holes.releasable)} in empty segments"),
    ]
    parts = (
        (ACTIVE, f"in use {bytes_text(holes.active)}"),
        (PENDING, f"freed, awaited {bytes_text(holes.pending)}"),
        (HOLE, f"free {bytes_text(holes.free)}"),
        (MIXED, "in use and free"),
    )
    legend = (span for glyph, words in parts for span in (Span(f" {glyph}", _ROLES[glyph]), Span(f" {words} ")))
    return [cut(told, width), cut(legend, width)]


def heading_line(width: int) -> Line:
    """The headings of the table."""
    text = f" {'Size':>{_SIZE_WIDTH}} {'Free':>{_SIZE_WIDTH}} {'Hole':>{_SIZE_WIDTH}}  What lies in it, by address"
    return line(Span(clipped(text, width).ljust(width), Role.HEADING))


def segment_rows(found: SegmentLayout, width: int) -> Iterator[TableRow | LaterRow]:
    """A heading a group, and under it a row a segment; of thousands only those in sight are drawn."""
    for group in found.groups:
        key = f"{group.pool}/{group.stream}/{group.is_large}"
        yield TableRow(key, cut(_group_line(group), width))
        for segment in group.segments:
            yield LaterRow(f"{key}/{segment.address}", partial(_segment_line, segment, width))


def _group_line(group: Group) -> Line:
    pool = "shared pool" if group.pool == SHARED_POOL else f"private pool {group.pool[0]}.{group.pool[1]}"
    stream = f", stream {group.stream:#x}" if group.stream else ""
    kind = "large" if group.is_large else "small"
    count = len(group.segments)
    told = f": {count} segment{'' if count == 1 else 's'}"
    share = f"{group.holes.fragmentation:.0%}"
    fragmented = "" if share == "0%" else f", {share} fragmented"
    return line(Span(f"{_figures(group.holes)} {pool}{stream}, {kind}", Role.ACCENT), f"{told}{fragmented}")


def _figures(holes: Holes) -> str:
    texts = (bytes_text(each) if each else "0" for each in (holes.size, holes.free, holes.largest))
    return "".join(f"{text:>{_SIZE_WIDTH}} " for text in texts)


def _segment_line(segment: Segment, width: int) -> Line:
    room = max(_LEAST_MAP, width - _FIGURES_WIDTH)
    return line(_figures(holes_of(segment)), " ", *[Span(cell, _ROLES[cell]) for cell in block_map(segment, room)])


def block_map(segment: Segment, width: int) -> str:
    """A segment from its first byte to its last, a cell an equal part of it: what most of that part is."""
    size = max(segment.size_bytes, sum(each.size_bytes for each in segment.blocks))
    if not size:
        return ""
    cell_bytes = size / width
    used, pending = [0.0] * width, [0.0] * width
    begin = 0
    for block in segment.blocks:
        end = begin + block.size_bytes
        if block.state is not BlockState.INACTIVE:
            _fill(used if block.state is BlockState.ALLOCATED else pending, begin / cell_bytes, end / cell_bytes)
        begin = end
    return "".join(map(_glyph, used, pending))


def _fill(cells: list[float], begin: float, end: float) -> None:
    """Adds what lies between two places, given in cells, to each of them."""
    first, last = int(begin), min(int(end), len(cells) - 1)
    for place in range(first, last + 1):
        cells[place] += min(end, place + 1) - max(begin, place)


def _glyph(used: float, pending: float) -> str:
    if pending > used and pending >= _MIXED_SHARE:
        return PENDING
    taken = used + pending
    if taken < _MIXED_SHARE:
        return HOLE
    return ACTIVE if taken > 1 - _MIXED_SHARE else MIXED
