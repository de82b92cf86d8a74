"""The memory of a GPU from zero to its total: a stacked bar, and a row a part with the glyph that it has in the bar."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.core.units import bytes_text
from gpumon.operations.memory import Part, PartKind, Waterfall
from gpumon.operations.probed import Owner
from gpumon.probe.news import Probe
from gpumon.ui.paint.line import Line, Role, Span, clipped, cut, line, width_of
from gpumon.ui.paint.text import wrapped
from gpumon.ui.probes import OutOfMemory
from gpumon.ui.view.memory_words import owner_note, owner_words, process_words, state_words, waiting_note, who_text

_GLYPHS: Final = {
    PartKind.DRIVER_RESERVED: ("▞", Role.DIM),
    PartKind.CONTEXT: ("▄", Role.PLAIN),
    PartKind.ALLOCATED: ("█", Role.MEMORY_HISTORY),
    PartKind.FREED_WAITING: ("▓", Role.WARNING),
    PartKind.RELEASABLE: ("░", Role.GPU_HISTORY),
    PartKind.CACHED: ("░", Role.GPU_HISTORY),
    PartKind.FRAGMENTED: ("▚", Role.WARNING),
    PartKind.UNPROBED: ("▒", Role.PLAIN),
    PartKind.UNOWNED: ("?", Role.WARNING),
    PartKind.FREE: ("·", Role.DIM),
}
_LABEL_WIDTH: Final = 25
_SIZE_WIDTH: Final = 9
_SHARE_WIDTH: Final = 6
_FIGURES_WIDTH: Final = _LABEL_WIDTH + _SIZE_WIDTH + _SHARE_WIDTH + 3
_LEAST_REST_FOR_PIECES: Final = 75
_PIECES_SHARE: Final = 0.42
_MOST_NOTES: Final = 2


class MemoryRow(NamedTuple):
    """A row of the table.

    Attributes:
        key: What it is about.
        pid: Whose it is, as gpumon sees it; None for what is no process's.
        line: How it looks.
        note: What it is, and what would free it.
    """

    key: str
    pid: int | None
    line: Line
    note: str


class Extent(NamedTuple):
    """The cells of a part in a bar: from the first one up to, and without, the end."""

    begin: int
    end: int


def extents(sizes: Sequence[float], total: float, width: int) -> list[Extent]:
    """Where each part lies in a bar; one that is not empty has a cell at least, where there is room."""
    found: list[Extent] = []
    begin, summed = 0, 0.0
    for size in sizes:
        summed += size
        end = min(width, round(summed / total * width)) if total > 0 else 0
        end = min(width, max(end, begin + (size > 0)))
        found.append(Extent(begin, end))
        begin = end
    return found


def headline(fall: Waterfall, width: int) -> Line:
    """How much there is and how much of it is taken."""
    free = sum(part.bytes for part in fall.parts if part.kind is PartKind.FREE)
    used, total = bytes_text(fall.total_bytes - free), bytes_text(fall.total_bytes)
    left, right = f" {used} of {total} taken", f"{bytes_text(free)} free "
    return line(Span(left, Role.ACCENT), " " * max(1, width - width_of(left + right)), right)


def bar_line(fall: Waterfall, width: int) -> Line:
    """The whole memory in one bar."""
    cells = max(1, width - 2)
    drawn = (
        Span(glyph * (extent.end - extent.begin), role)
        for part, extent in zip(
            fall.parts, extents([each.bytes for each in fall.parts], fall.total_bytes, cells), strict=True
        )
        for glyph, role in (_GLYPHS[part.kind],)
    )
    return line(" ", *drawn)


def note_lines(notes: Sequence[str], width: int) -> list[Line]:
    """What is to be known beside the waterfall, a line each; those left out are counted."""
    shown = [f" ! {note}" for note in notes[:_MOST_NOTES]]
    more = len(notes) - _MOST_NOTES
    if more > 0:
        shown[-1] = clipped(shown[-1], width - 10) + f" (+{more} more)"
    return [line(Span(clipped(each, width), Role.WARNING)) for each in shown]


def table_heading(width: int, total_bytes: float) -> Line:
    """The headings; over the pieces stand the ends of their scale."""
    pieces, _ = _rest(width)
    text = f"   {'Part':<{_LABEL_WIDTH - 2}} {'Size':>{_SIZE_WIDTH}} {'Share':>{_SHARE_WIDTH}} "
    if pieces:
        text += f"{'0':<{pieces - _SIZE_WIDTH}}{bytes_text(total_bytes):>{_SIZE_WIDTH}} "
    return line(Span(clipped(f"{text}What it is", width).ljust(width), Role.HEADING))


def memory_rows(
    fall: Waterfall, owners: Mapping[int, Owner], probes: Mapping[int, Probe], now: float, width: int
) -> Iterator[MemoryRow]:
    """A row a part, under a heading for each process that tells its parts; then the probes that have none.

    Args:
        fall: The memory.
        owners: Who holds what, by PID.
        probes: All probes that are known, by PID.
        now: Monotonic seconds.
        width: Cells of a row.
    """
    pieces, _ = _rest(width)
    places = extents([part.bytes for part in fall.parts], fall.total_bytes, pieces)
    told: set[int] = set()
    for part, extent in zip(fall.parts, places, strict=True):
        owner = None if part.pid is None else owners.get(part.pid)
        is_whole = part.kind is PartKind.UNPROBED
        if owner is not None and owner.pid not in told:
            told.add(owner.pid)
            if not is_whole:
                yield _owner_row(owner, fall, now, width)
        yield _part_row(part, owner if is_whole else None, fall.total_bytes, extent, width)
    for pid, probe in sorted(probes.items()):
        if pid not in told and (probe.reading is None or not probe.reading.devices):
            words = f"  {process_words(probe)}"
            shown = line(
                Span(clipped(words, _LABEL_WIDTH).ljust(_LABEL_WIDTH + 1), Role.ACCENT), *state_words(probe, now)
            )
            yield MemoryRow(f"probe/{pid}", pid, cut(shown, width), waiting_note(probe))


def _owner_row(owner: Owner, fall: Waterfall, now: float, width: int) -> MemoryRow:
    size = sum(part.bytes for part in fall.parts if part.pid == owner.pid)
    figures = _figures(size, fall.total_bytes)
    label = f"{clipped(who_text(owner), _LABEL_WIDTH):<{_LABEL_WIDTH}} {figures} "
    shown = line(Span(label, Role.ACCENT), *owner_words(owner, now))
    return MemoryRow(f"process/{owner.pid}", owner.pid, cut(shown, width), owner_note(owner, now))


def _part_row(part: Part, owner: Owner | None, total_bytes: int, extent: Extent, width: int) -> MemoryRow:
    glyph, role = _GLYPHS[part.kind]
    indent = "  " if part.pid is not None and owner is None else ""
    label = part.label if owner is None else who_text(owner)
    words = part.meaning if owner is None or owner.probe is not None else _command(owner) or part.meaning
    pieces, rest = _rest(width)
    text_role = Role.PLAIN if part.bytes else Role.DIM
    spans = [
        Span(f"{indent}"),
        Span(glyph, role),
        Span(f" {label:<{_LABEL_WIDTH - 2 - len(indent)}} {_figures(part.bytes, total_bytes)} ", text_role),
    ]
    if pieces:
        spans += [Span(" " * extent.begin), Span(glyph * (extent.end - extent.begin), role)]
        spans += [Span(" " * (pieces + 1 - extent.end))]
    spans.append(Span(clipped(words, rest), Role.DIM if owner is None else text_role))
    key = f"{'' if part.pid is None else part.pid}/{part.kind.value}"
    remedy = f" → {part.remedy}" if part.remedy else ""
    note = f"{label}: {part.meaning}{remedy}"
    return MemoryRow(key, part.pid, line(*spans), note)


def _command(owner: Owner) -> str:
    return (None if owner.process is None else owner.process.command) or ""


def _figures(size: int, total: int) -> str:
    share = f"{size / total:.1%}" if total else ""
    return f"{bytes_text(size):>{_SIZE_WIDTH}} {share:>{_SHARE_WIDTH}}"


def _rest(width: int) -> tuple[int, int]:
    """Cells for the pieces of the bar, none on a narrow screen, and for the words."""
    rest = max(0, width - _FIGURES_WIDTH)
    pieces = int(rest * _PIECES_SHARE) if rest >= _LEAST_REST_FOR_PIECES else 0
    return pieces, rest - pieces - (1 if pieces else 0)


def oom_line(ran_out: OutOfMemory, width: int) -> Line:
    """That a process ran out of memory, and the key that explains it."""
    at = time.strftime("%H:%M:%S", time.localtime(ran_out.time_seconds))
    said = f" ! PID {ran_out.pid} ran out of memory at {at}: o explains it"
    return line(Span(clipped(said, width), Role.ERROR))


def pane_lines(note: str, width: int, height: int) -> list[Line]:
    """All that is said about the row under the cursor, in exactly so many lines; what it is about stands out."""
    said = wrapped(note, width - 2)
    if len(said) > height:
        said[height - 1 :] = [clipped(" ".join(said[height - 1 :]), width - 2)]
    subject, colon, rest = said[0].partition(":") if said else ("", "", "")
    lines = [line(" ", Span(subject + colon, Role.ACCENT), rest), *(line(f" {each}") for each in said[1:])]
    return [*lines, *[()] * (height - len(lines))]
