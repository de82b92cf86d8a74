"""The memory of a GPU from zero to its total: a row per part, with the mark and the glyph that it has in the bar."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.core.units import bytes_text, counted, of_text, time_of_day_text
from gpumon.health.alerts import Alert
from gpumon.operations.gpu_processes import Owner
from gpumon.operations.waterfall import MemoryPart, PartKind, Waterfall
from gpumon.present.memory_bar import MemoryGroup, group_extents
from gpumon.present.paint.bar import Extent
from gpumon.present.paint.line import Line, Role, Span, clipped, cut, line, width_of, wrapped
from gpumon.present.probe_text import owner_line, owner_note, probe_state_line, probe_state_note, process_text, who_text
from gpumon.probe.messages import Probe

_LABEL_WIDTH: Final = 26
"""Mark, glyph, a space, and the name of the part."""
_INDENT: Final = 3
_SIZE_WIDTH: Final = 9
_SHARE_WIDTH: Final = 6
_VALUES_WIDTH: Final = _LABEL_WIDTH + _SIZE_WIDTH + _SHARE_WIDTH + 3
_MIN_WIDTH_FOR_BARS: Final = 74
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
    left, right = f" {of_text(used, total)} in use", f"{bytes_text(free)} free "
    return line(Span(left, Role.ACCENT), " " * max(1, width - width_of(left + right)), right)


def note_lines(notes: Sequence[str], width: int) -> list[Line]:
    """Notes about the waterfall, one line each; those left out are counted."""
    shown = [f" ! {note}" for note in notes[:_MAX_NOTES]]
    left_out = len(notes) - _MAX_NOTES
    if left_out > 0:
        shown[-1] = clipped(shown[-1], width - 10) + f" (+{left_out} more)"
    return [line(Span(clipped(note, width), Role.WARNING)) for note in shown]


def table_heading(width: int, total_bytes: float, row_width: int) -> Line:
    """The headings of rows with ``row_width`` cells; the ends of the scale stand above the bars."""
    bars, _ = _widths(row_width)
    text = f"{'':{_INDENT + 1}}{'Part':<{_LABEL_WIDTH - _INDENT}} {'Size':>{_SIZE_WIDTH}} {'Share':>{_SHARE_WIDTH}} "
    if bars:
        text += f"{'0':<{bars - _SIZE_WIDTH}}{bytes_text(total_bytes):>{_SIZE_WIDTH}} "
    return line(Span(clipped(f"{text}Description", width).ljust(width), Role.HEADING))


def memory_rows(
    fall: Waterfall, groups: Sequence[MemoryGroup], probes: Mapping[int, Probe], now: float, width: int
) -> Iterator[MemoryRow]:
    """A row per part, with a heading for each process whose parts are known, then the probes that report no memory.

    Each process has the mark and the color that it has in the bar.

    Args:
        fall: The memory.
        groups: The groups of the bar.
        probes: All known probes, by PID.
        now: Monotonic seconds.
        width: Cells of a row.
    """
    bars, _ = _widths(width)
    owners = {owner.pid: owner for owner in fall.owners}
    shown: set[int] = set()
    for group, cells in zip(groups, group_extents(groups, fall.total_bytes, bars), strict=True):
        for part, extent in zip(group.parts, cells, strict=True):
            owner = None if part.pid is None else owners.get(part.pid)
            is_unprobed = part.kind is PartKind.UNPROBED
            if owner is not None and owner.pid not in shown:
                shown.add(owner.pid)
                if not is_unprobed:
                    yield _owner_row(owner, group, fall, now, width)
            yield _part_row(
                part, owner if is_unprobed else None, group, extent, total_bytes=fall.total_bytes, width=width
            )
    for pid, probe in sorted(probes.items()):
        if pid not in shown and (probe.reading is None or not probe.reading.devices):
            yield _probe_row(probe, now, width)


def _probe_row(probe: Probe, now: float, width: int) -> MemoryRow:
    label = clipped(f"{' ' * _INDENT}{process_text(probe)}", _LABEL_WIDTH).ljust(_LABEL_WIDTH + 1)
    row = line(Span(label, Role.ACCENT), *probe_state_line(probe, now))
    return MemoryRow(f"probe/{probe.pid}", probe.pid, cut(row, width), probe_state_note(probe))


def _owner_row(owner: Owner, group: MemoryGroup, fall: Waterfall, now: float, width: int) -> MemoryRow:
    size = sum(part.bytes for part in fall.parts if part.pid == owner.pid)
    room = _LABEL_WIDTH - _INDENT
    label = f"{clipped(who_text(owner), room):<{room}} {_size_and_share(size, fall.total_bytes)} "
    row = line(Span(f"{group.mark:<{_INDENT}}", group.role), Span(label, Role.ACCENT), *owner_line(owner, now))
    return MemoryRow(f"process/{owner.pid}", owner.pid, cut(row, width), owner_note(owner, now))


def _part_row(
    part: MemoryPart, owner: Owner | None, group: MemoryGroup, extent: Extent, *, total_bytes: int, width: int
) -> MemoryRow:
    glyph, role = group.style(part)
    indent = "  " if part.pid is not None and owner is None else ""
    label = part.label if owner is None else who_text(owner)
    text = part.meaning if owner is None or owner.probe is not None else _command(owner) or part.meaning
    bars, room = _widths(width)
    text_role = Role.PLAIN if part.bytes else Role.DIM
    values = f" {indent + label:<{_LABEL_WIDTH - _INDENT}} {_size_and_share(part.bytes, total_bytes)} "
    spans = [Span(f"{'' if owner is None else group.mark:<1}{glyph}", role), Span(values, text_role)]
    if bars:
        begin, end = extent
        end = max(end, min(bars, begin + (part.bytes > 0)))  # in its own row, a part has room that it lacks in the bar
        spans += [Span(" " * begin), Span(glyph * (end - begin), role), Span(" " * (bars + 1 - end))]
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


def oom_lines(alerts: Sequence[Alert], width: int) -> list[Line]:
    """The newest alert about a process that ran out of memory, and the keys that explain and dismiss it."""
    if not alerts:
        return []
    newest = max(alerts, key=lambda alert: alert.since_seconds)
    at = time_of_day_text(newest.since_seconds)
    more = f", {counted(len(alerts) - 1, 'more process')} before" if len(alerts) > 1 else ""
    text = f" ! {at} {newest.detail.rstrip('.')}{more} (e: explain, a: acknowledge)"
    if width_of(text) > width:
        text = f" ! {newest.title} (e: explain, a: dismiss)"
    return [line(Span(clipped(text, width), Role.ERROR))]


def pane_lines(note: str, width: int, height: int) -> list[Line]:
    """The note of the row under the cursor in exactly ``height`` lines, with its subject highlighted."""
    lines = wrapped(note, width - 2)
    if len(lines) > height:
        lines[height - 1 :] = [clipped(" ".join(lines[height - 1 :]), width - 2)]
    subject, colon, text = lines[0].partition(":") if lines else ("", "", "")
    result = [line(" ", Span(subject + colon, Role.ACCENT), text), *(line(f" {following}") for following in lines[1:])]
    return [*result, *[()] * (height - len(result))]
