"""The memory of a GPU from zero to its total: a stacked bar, and a row per part with the glyph that it has there."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.core.units import bytes_text
from gpumon.operations.memory import MemoryPart, PartKind, Waterfall
from gpumon.operations.torch_processes import Owner
from gpumon.present.paint.bar import Extent, extents
from gpumon.present.paint.line import Line, Role, Span, clipped, cut, line, width_of, wrapped
from gpumon.present.probe_text import (
    owner_line,
    owner_note,
    probe_state_line,
    probe_state_note,
    process_text,
    who_text,
)
from gpumon.probe.messages import Probe
from gpumon.session.view_state import OomNotice

_GLYPHS: Final = {
    PartKind.DRIVER_RESERVED: ("▞", Role.DIM),
    PartKind.CONTEXT: ("▄", Role.PLAIN),
    PartKind.ALLOCATED: ("█", Role.MEMORY_HISTORY),
    PartKind.FREED_WAITING: ("▓", Role.WARNING),
    PartKind.RELEASABLE: ("░", Role.GPU_HISTORY),
    PartKind.CACHED: ("░", Role.GPU_HISTORY),
    PartKind.FRAGMENTED: ("▚", Role.WARNING),
    PartKind.UNPROBED: ("▒", Role.PLAIN),
    PartKind.UNATTRIBUTED: ("?", Role.WARNING),
    PartKind.FREE: ("·", Role.DIM),
}
_LABEL_WIDTH: Final = 25
_SIZE_WIDTH: Final = 9
_SHARE_WIDTH: Final = 6
_VALUES_WIDTH: Final = _LABEL_WIDTH + _SIZE_WIDTH + _SHARE_WIDTH + 3
_MIN_WIDTH_FOR_BARS: Final = 75
"""Cells right of the values from which on each row shows its part of the bar."""
_BARS_SHARE: Final = 0.42
_MAX_NOTES: Final = 2


class MemoryRow(NamedTuple):
    """A row of the table.

    Attributes:
        key: Identifies the row over time.
        pid: The process, by its PID as gpumon sees it; None for memory that belongs to no process.
        line: The row as a line.
        note: The meaning of the row, and what would free the memory.
    """

    key: str
    pid: int | None
    line: Line
    note: str


def headline(fall: Waterfall, width: int) -> Line:
    """The memory in use, the total, and the free memory."""
    free = sum(part.bytes for part in fall.parts if part.kind is PartKind.FREE)
    used, total = bytes_text(fall.total_bytes - free), bytes_text(fall.total_bytes)
    left, right = f" {used} of {total} in use", f"{bytes_text(free)} free "
    return line(Span(left, Role.ACCENT), " " * max(1, width - width_of(left + right)), right)


def bar_line(fall: Waterfall, width: int) -> Line:
    """All parts in one bar."""
    places = extents([part.bytes for part in fall.parts], fall.total_bytes, max(1, width - 2))
    spans = []
    for part, extent in zip(fall.parts, places, strict=True):
        glyph, role = _GLYPHS[part.kind]
        spans.append(Span(glyph * (extent.end - extent.begin), role))
    return line(" ", *spans)


def note_lines(notes: Sequence[str], width: int) -> list[Line]:
    """Notes about the waterfall, one line each; those left out are counted."""
    shown = [f" ! {note}" for note in notes[:_MAX_NOTES]]
    left_out = len(notes) - _MAX_NOTES
    if left_out > 0:
        shown[-1] = clipped(shown[-1], width - 10) + f" (+{left_out} more)"
    return [line(Span(clipped(note, width), Role.WARNING)) for note in shown]


def table_heading(width: int, total_bytes: float) -> Line:
    """The headings; the ends of the scale stand above the bars."""
    bars, _ = _widths(width)
    text = f"   {'Part':<{_LABEL_WIDTH - 2}} {'Size':>{_SIZE_WIDTH}} {'Share':>{_SHARE_WIDTH}} "
    if bars:
        text += f"{'0':<{bars - _SIZE_WIDTH}}{bytes_text(total_bytes):>{_SIZE_WIDTH}} "
    return line(Span(clipped(f"{text}Description", width).ljust(width), Role.HEADING))


def memory_rows(
    fall: Waterfall, owners: Mapping[int, Owner], probes: Mapping[int, Probe], now: float, width: int
) -> Iterator[MemoryRow]:
    """A row per part, with a heading for each process whose parts are known, then the probes that report no memory.

    Args:
        fall: The memory.
        owners: The processes that hold memory, by PID.
        probes: All known probes, by PID.
        now: Monotonic seconds.
        width: Cells of a row.
    """
    bars, _ = _widths(width)
    places = extents([part.bytes for part in fall.parts], fall.total_bytes, bars)
    shown: set[int] = set()
    for part, extent in zip(fall.parts, places, strict=True):
        owner = None if part.pid is None else owners.get(part.pid)
        is_unprobed = part.kind is PartKind.UNPROBED
        if owner is not None and owner.pid not in shown:
            shown.add(owner.pid)
            if not is_unprobed:
                yield _owner_row(owner, fall, now, width)
        yield _part_row(part, owner if is_unprobed else None, fall.total_bytes, extent, width)
    for pid, probe in sorted(probes.items()):
        if pid not in shown and (probe.reading is None or not probe.reading.devices):
            yield _probe_row(probe, now, width)


def _probe_row(probe: Probe, now: float, width: int) -> MemoryRow:
    label = clipped(f"  {process_text(probe)}", _LABEL_WIDTH).ljust(_LABEL_WIDTH + 1)
    row = line(Span(label, Role.ACCENT), *probe_state_line(probe, now))
    return MemoryRow(f"probe/{probe.pid}", probe.pid, cut(row, width), probe_state_note(probe))


def _owner_row(owner: Owner, fall: Waterfall, now: float, width: int) -> MemoryRow:
    size = sum(part.bytes for part in fall.parts if part.pid == owner.pid)
    label = f"{clipped(who_text(owner), _LABEL_WIDTH):<{_LABEL_WIDTH}} {_size_and_share(size, fall.total_bytes)} "
    row = line(Span(label, Role.ACCENT), *owner_line(owner, now))
    return MemoryRow(f"process/{owner.pid}", owner.pid, cut(row, width), owner_note(owner, now))


def _part_row(part: MemoryPart, owner: Owner | None, total_bytes: int, extent: Extent, width: int) -> MemoryRow:
    glyph, role = _GLYPHS[part.kind]
    indent = "  " if part.pid is not None and owner is None else ""
    label = part.label if owner is None else who_text(owner)
    text = part.meaning if owner is None or owner.probe is not None else _command(owner) or part.meaning
    bars, room = _widths(width)
    text_role = Role.PLAIN if part.bytes else Role.DIM
    values = f" {label:<{_LABEL_WIDTH - 2 - len(indent)}} {_size_and_share(part.bytes, total_bytes)} "
    spans = [Span(indent), Span(glyph, role), Span(values, text_role)]
    if bars:
        spans += [Span(" " * extent.begin), Span(glyph * (extent.end - extent.begin), role)]
        spans += [Span(" " * (bars + 1 - extent.end))]
    spans.append(Span(clipped(text, room), Role.DIM if owner is None else text_role))
    key = f"{'' if part.pid is None else part.pid}/{part.kind.value}"
    remedy = f" → {part.remedy}" if part.remedy else ""
    return MemoryRow(key, part.pid, line(*spans), f"{label}: {part.meaning}{remedy}")


def _command(owner: Owner) -> str:
    return (None if owner.process is None else owner.process.command) or ""


def _size_and_share(size: int, total: int) -> str:
    share = f"{size / total:.1%}" if total else ""
    return f"{bytes_text(size):>{_SIZE_WIDTH}} {share:>{_SHARE_WIDTH}}"


def _widths(width: int) -> tuple[int, int]:
    """Cells for the bars, which are left out on a narrow screen, and for the description."""
    rest = max(0, width - _VALUES_WIDTH)
    bars = int(rest * _BARS_SHARE) if rest >= _MIN_WIDTH_FOR_BARS else 0
    return bars, rest - bars - (1 if bars else 0)


def oom_line(oom: OomNotice, width: int) -> Line:
    """A process that ran out of memory, and the key that explains it."""
    at = time.strftime("%H:%M:%S", time.localtime(oom.time_seconds))
    return line(Span(clipped(f" ! PID {oom.pid} ran out of memory at {at} (o: explain)", width), Role.ERROR))


def pane_lines(note: str, width: int, height: int) -> list[Line]:
    """The note of the row under the cursor in exactly ``height`` lines, with its subject highlighted."""
    lines = wrapped(note, width - 2)
    if len(lines) > height:
        lines[height - 1 :] = [clipped(" ".join(lines[height - 1 :]), width - 2)]
    subject, colon, text = lines[0].partition(":") if lines else ("", "", "")
    result = [line(" ", Span(subject + colon, Role.ACCENT), text), *(line(f" {following}") for following in lines[1:])]
    return [*result, *[()] * (height - len(result))]
