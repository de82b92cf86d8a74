"""The allocator's segments as maps of their blocks, by pool and stream, with the free memory between blocks."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from gpumon.core.allocator import BlockState, Segment
from gpumon.core.holes import SHARED_POOL, Holes, SegmentGroup, SegmentLayout, holes_of
from gpumon.core.units import bytes_text, counted
from gpumon.present.paint.line import Line, Role, Span, clipped, cut, line
from gpumon.present.paint.table import LazyRow, TableRow

ACTIVE: Final = "█"
PENDING: Final = "▓"
HOLE: Final = "·"
MIXED: Final = "▒"
"""A cell of which at least a sixth is in use and at least a sixth is free."""

_MIXED_SHARE: Final = 1 / 6
_ROLES: Final = {ACTIVE: Role.MEMORY_HISTORY, MIXED: Role.MEMORY_HISTORY, PENDING: Role.WARNING, HOLE: Role.DIM}
_SIZE_WIDTH: Final = 9
_SIZES_WIDTH: Final = 3 * (_SIZE_WIDTH + 1) + 1
_MIN_MAP_WIDTH: Final = 8


def summary_lines(layout: SegmentLayout, width: int) -> list[Line]:
    """The totals over all segments, and the legend of the maps."""
    holes = layout.holes
    totals = [
        Span(f" {counted(len(layout.segments), 'segment')}, {bytes_text(holes.size)}", Role.ACCENT),
        Span(f"; free {bytes_text(holes.free)}, largest hole {bytes_text(holes.largest)}, "),
        Span(f"fragmentation {holes.fragmentation:.0%}, {bytes_text(holes.releasable)} in empty segments"),
    ]
    parts = (
        (ACTIVE, f"in use {bytes_text(holes.active)}"),
        (PENDING, f"freed, waiting for stream {bytes_text(holes.pending)}"),
        (HOLE, f"free {bytes_text(holes.free)}"),
        (MIXED, "both"),
    )
    legend = (span for glyph, text in parts for span in (Span(f" {glyph}", _ROLES[glyph]), Span(f" {text} ")))
    return [cut(totals, width), cut(legend, width)]


def heading_line(width: int) -> Line:
    """The headings of the table."""
    text = f" {'Size':>{_SIZE_WIDTH}} {'Free':>{_SIZE_WIDTH}} {'Hole':>{_SIZE_WIDTH}}  Blocks by address"
    return line(Span(clipped(text, width).ljust(width), Role.HEADING))


def segment_rows(layout: SegmentLayout, width: int) -> Iterator[TableRow | LazyRow]:
    """A heading per group, and below it a row per segment; of thousands of rows only the visible ones are drawn."""
    for group in layout.groups:
        key = f"{group.pool}/{group.stream}/{group.is_large}"
        yield TableRow(key, cut(_group_line(group), width))
        for segment in group.segments:
            yield LazyRow(f"{key}/{segment.address}", partial(_segment_line, segment, width))


def _group_line(group: SegmentGroup) -> Line:
    pool = "shared pool" if group.pool == SHARED_POOL else f"private pool {group.pool[0]}.{group.pool[1]}"
    stream = f", stream {group.stream:#x}" if group.stream else ""
    kind = "large" if group.is_large else "small"
    share = f"{group.holes.fragmentation:.0%}"
    fragmented = "" if share == "0%" else f", {share} fragmented"
    return line(
        Span(f"{_sizes(group.holes)} {pool}{stream}, {kind}", Role.ACCENT),
        f": {counted(len(group.segments), 'segment')}{fragmented}",
    )


def _sizes(holes: Holes) -> str:
    texts = (bytes_text(size) if size else "0" for size in (holes.size, holes.free, holes.largest))
    return "".join(f"{text:>{_SIZE_WIDTH}} " for text in texts)


def _segment_line(segment: Segment, width: int) -> Line:
    room = max(_MIN_MAP_WIDTH, width - _SIZES_WIDTH)
    return line(_sizes(holes_of(segment)), " ", *[Span(cell, _ROLES[cell]) for cell in block_map(segment, room)])


def block_map(segment: Segment, width: int) -> str:
    """A segment from its first byte to its last in ``width`` cells, each showing what most of its part of it is."""
    size = max(segment.size_bytes, sum(block.size_bytes for block in segment.blocks))
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
    """Adds to each cell the share of it that lies between two positions, which are given in cells."""
    first, last = int(begin), min(int(end), len(cells) - 1)
    for index in range(first, last + 1):
        cells[index] += min(end, index + 1) - max(begin, index)


def _glyph(used: float, pending: float) -> str:
    if pending > used and pending >= _MIXED_SHARE:
        return PENDING
    taken = used + pending
    if taken < _MIXED_SHARE:
        return HOLE
    return ACTIVE if taken > 1 - _MIXED_SHARE else MIXED
