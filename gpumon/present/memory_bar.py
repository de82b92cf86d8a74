"""The stacked bar of a GPU's memory: a color and a letter for each process, a glyph for each kind of part."""

from collections.abc import Iterator, Sequence
from string import ascii_uppercase
from typing import Final, NamedTuple

from gpumon.core.groups import grouped
from gpumon.core.text_table import table
from gpumon.core.units import bytes_text, counted
from gpumon.operations.waterfall import MemoryPart, PartKind, Waterfall
from gpumon.present.paint.bar import Extent, extents
from gpumon.present.paint.line import SERIES_ROLES, Line, Role, Span, line, width_of

OTHERS: Final = "+"
"""The mark of all processes that are too small for a place in the bar."""
MARKS: Final = ascii_uppercase
_MIN_CELLS: Final = 0.5
"""A process with a smaller share of the bar is too small for its own place, unless it is the only one."""
_GLYPHS: Final = {
    PartKind[kind]: (glyph, Role[role]) for kind, glyph, role in map(str.split, table(__package__, "memory_parts"))
}
"""The glyph of each kind, and its role where the part belongs to no process."""
_UNPROBED_GLYPHS: Final = ("▒", "▓")
"""Processes without a probe alternate between these, so that adjacent ones differ without color."""
_POINTER: Final = "▔"


class MemoryGroup(NamedTuple):
    """Parts that are next to each other in the bar: those of a process, of all small processes, or of no process.

    Attributes:
        mark: Its letter; empty for memory that belongs to no process.
        parts: The parts, in the order of the bar.
        number: Position among the processes, from which the color follows.
    """

    mark: str
    parts: tuple[MemoryPart, ...]
    number: int = 0

    @property
    def bytes(self) -> int:
        """Size of all parts."""
        return sum(part.bytes for part in self.parts)

    @property
    def role(self) -> Role:
        """The color of its mark."""
        return SERIES_ROLES[self.number % len(SERIES_ROLES)] if self.mark and self.mark != OTHERS else Role.PLAIN

    def style(self, part: MemoryPart) -> Span:
        """The glyph of one of its parts, with its role."""
        glyph, role = _GLYPHS[part.kind]
        if self.mark and self.mark != OTHERS:
            role = self.role
            if part.kind is PartKind.UNPROBED:
                glyph = _UNPROBED_GLYPHS[self.number % len(_UNPROBED_GLYPHS)]
        return Span(glyph, role)

    def has(self, pid: int | None) -> bool:
        """Whether a process belongs to it."""
        return pid is not None and any(part.pid == pid for part in self.parts)


def memory_groups(fall: Waterfall, width: int) -> list[MemoryGroup]:
    """The groups in the order of the bar, which is that of the table: processes by PID, then the small ones together.

    Args:
        fall: The memory.
        width: Cells of the bar.
    """
    processes = grouped((part.pid, part) for part in fall.parts if part.pid is not None)
    sizes = {pid: sum(part.bytes for part in parts) for pid, parts in processes.items()}
    small = {pid for pid, size in sizes.items() if size * width < _MIN_CELLS * fall.total_bytes}
    small = small if len(small) > 1 else set()
    largest = sorted(sizes.keys() - small, key=lambda pid: -sizes[pid])[: len(MARKS)]
    marked = [pid for pid in processes if pid in largest]
    others = [part for pid, parts in processes.items() if pid not in largest for part in parts]
    groups = [MemoryGroup(MARKS[number], tuple(processes[pid]), number) for number, pid in enumerate(marked)]
    groups += [MemoryGroup(OTHERS, tuple(others))] if others else []
    outside = [MemoryGroup("", (part,)) for part in fall.parts if part.pid is None]
    split = sum(group.parts[0].kind is PartKind.DRIVER_RESERVED for group in outside)
    return [*outside[:split], *groups, *outside[split:]]


def group_extents(groups: Sequence[MemoryGroup], total_bytes: int, width: int) -> Iterator[list[Extent]]:
    """The cells of every part of every group; a part of a group of small processes has those of the group.

    Args:
        groups: The groups, in the order of the bar.
        total_bytes: What the complete bar stands for.
        width: Cells of the bar.
    """
    places = _extents_of_largest([group.bytes for group in groups], total_bytes, width)
    for group, (begin, end) in zip(groups, places, strict=True):
        if group.mark == OTHERS:
            yield [Extent(begin, end)] * len(group.parts)
        else:
            inner = _extents_of_largest([part.bytes for part in group.parts], group.bytes, end - begin)
            yield [Extent(begin + part.begin, begin + part.end) for part in inner]


def _extents_of_largest(sizes: Sequence[int], total: int, width: int) -> list[Extent]:
    """The cells of each size; where there are more sizes than cells, the smallest have none."""
    order = sorted(range(len(sizes)), key=lambda index: -sizes[index])
    without_room = set(order[width:])
    left_out = sum(sizes[index] for index in without_room)
    kept = [0 if index in without_room else size for index, size in enumerate(sizes)]
    return extents(kept, total - left_out, width)


def bar_line(groups: Sequence[MemoryGroup], total_bytes: int, width: int, pid: int | None = None) -> Line:
    """All parts in one bar; the first cell of a process is its mark, reversed for the process with ``pid``."""
    spans: list[Span] = []
    for group, cells in zip(groups, group_extents(groups, total_bytes, max(1, width - 2)), strict=True):
        if group.mark == OTHERS:
            drawn = [Span(OTHERS * (cells[0].end - cells[0].begin), group.role)]
        else:
            styles = zip(map(group.style, group.parts), cells, strict=True)
            drawn = [Span(glyph * (end - begin), role) for (glyph, role), (begin, end) in styles if begin < end]
        if group.mark and any(span.text for span in drawn):
            text, role = drawn[0]
            drawn[:1] = [Span(group.mark, Role.CURSOR if group.has(pid) else group.role), Span(text[1:], role)]
        spans += drawn
    return line(" ", *spans)


def pointer_line(groups: Sequence[MemoryGroup], total_bytes: int, width: int, pid: int | None, who: str) -> Line:
    """A line below the bar that underlines a process and names it; empty without one.

    Args:
        groups: The groups, in the order of the bar.
        total_bytes: What the complete bar stands for.
        width: Cells of the line.
        pid: The process.
        who: Its name.
    """
    for group, cells in zip(groups, group_extents(groups, total_bytes, max(1, width - 2)), strict=True):
        if not group.has(pid):
            continue
        begin, end = cells[0].begin, cells[-1].end
        if group.mark == OTHERS:
            who = f"{counted(len({part.pid for part in group.parts}), 'small process')}, {who} among them"
        text = f"{group.mark} {who} {bytes_text(group.bytes)}"
        underline = Span(_POINTER * (end - begin), group.role)
        if end + width_of(text) + 3 <= width:
            return line(" " * (begin + 1), underline, f" {text}")
        if width_of(text) + 1 <= begin:
            return line(" " * (begin - width_of(text)), f"{text} ", underline)
        return line(" " * (begin + 1), underline)
    return ()
