"""A snapshot in words: what is allocated, the history and its peak, the segments, and what one has to know."""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from gpumon.core.holes import SegmentLayout
from gpumon.core.units import bytes_text
from gpumon.snapshots.model import Amount, DeviceMemory, Frame, History, Snapshot
from gpumon.snapshots.tree import Measure
from gpumon.ui.paint.line import Line, Role, Span, clipped, line, width_of
from gpumon.ui.paint.text import wrapped

_LIBRARY: Final = ("/site-packages/", "/dist-packages/", "/torch/", "<")
_PLACES: Final = 2
_GAP: Final = "   "

MEASURES: Final = {
    Measure.NOW: "in the end",
    Measure.PEAK: "at the peak",
    Measure.EVER: "in total",
}


def totals_lines(snapshot: Snapshot, device: DeviceMemory, width: int, *, is_brief: bool = False) -> list[Line]:
    """The device in a few lines, the most important figure first in each.

    Args:
        snapshot: The file.
        device: One of its devices.
        width: Cells of a line.
        is_brief: Whether each has one line, with what has room there.
    """
    most = 1 if is_brief else None
    lines = flowed(_held_parts(device), width)[:most]
    if device.history is not None:
        lines += flowed(_history_parts(device.history), width)[:most]
        lines += _failure_lines(snapshot, device.history, width)
    notes = (*snapshot.notes, *device.notes)
    return [*lines, *(line(Span(f" {piece}", Role.DIM)) for note in notes for piece in wrapped(note, width - 1))]


def flowed(parts: Sequence[str], width: int) -> list[Line]:
    """Parts side by side, as many to a line as it has room for; the first one is what matters."""
    rows: list[list[str]] = [[]]
    for part in parts:
        if rows[-1] and width_of(f" {_GAP.join((*rows[-1], part))}") > width:
            rows.append([])
        rows[-1].append(clipped(part, width - 1))
    first, *others = (_GAP.join(row) for row in rows)
    head = clipped(parts[0], width - 1)
    return [line(Span(f" {head}", Role.ACCENT), first[len(head) :]), *(line(f" {each}") for each in others)]


def _held_parts(device: DeviceMemory) -> list[str]:
    now = sum((use.now for use in device.uses), Amount())
    layout = SegmentLayout(device.segments, device.ordinal)
    holes = layout.holes
    if not device.segments:
        return [f"cuda:{device.ordinal}", "no segments"]
    return [
        f"cuda:{device.ordinal}  {bytes_text(now.bytes)} in {count_text(now.blocks, 'block')}",
        f"{bytes_text(holes.size)} reserved",
        f"{bytes_text(holes.free)} of it free, {bytes_text(holes.releasable)} in empty segments",
        f"largest hole {bytes_text(holes.largest)}, fragmentation {holes.fragmentation:.0%}",
        f"{count_text(len(layout.segments), 'segment')}",
    ]


def _history_parts(history: History) -> list[str]:
    lasted = f" in {seconds_text(history.duration_seconds)}" if history.has_times else ""
    return [
        f"Peak    {bytes_text(history.peak.bytes)} in {count_text(history.peak.blocks, 'block')}",
        f"{when_text(history, history.peak_seconds)}, {bytes_text(history.peak_reserved_bytes)} reserved",
        f"{history.events:,} events{lasted}",
        f"{bytes_text(history.earlier_bytes)} allocated before them",
    ]


def _failure_lines(snapshot: Snapshot, history: History, width: int) -> Iterator[Line]:
    if history.ooms:
        last = history.ooms[-1]
        told = (
            f"! Out of memory {count_text(len(history.ooms), 'time')}, last {when_text(history, last.seconds)}: "
            f"{bytes_text(last.bytes)} asked for with {bytes_text(last.free_bytes)} free, "
            f"by {who_text(snapshot.frames_of(last.stack))}"
        )
        yield from (line(Span(f" {piece}", Role.ERROR)) for piece in wrapped(told, width - 1))


def when_text(history: History, seconds: float) -> str:
    """A moment of a history: after some time, or at some event where there are no times."""
    return f"after {seconds_text(seconds)}" if history.has_times else f"at event {seconds:,.0f}"


def seconds_text(seconds: float) -> str:
    """A duration of a program, which may be short."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:,.0f} s"


def count_text(count: int, what: str) -> str:
    """A number of things."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def place_text(frame: Frame) -> str:
    """Where a frame is: the end of its path, and the line."""
    if not frame.file:
        return ""
    return f"{'/'.join(PurePosixPath(frame.file).parts[-_PLACES:])}:{frame.line}"


def frame_text(frame: Frame) -> str:
    """A frame in one line."""
    place = place_text(frame)
    return f"{frame.name} {place}" if place else frame.name


def who_text(frames: tuple[Frame, ...]) -> str:
    """Who allocated: the innermost frame, and the innermost one that belongs to no library."""
    own = next((frame for frame in frames if frame.file and not any(each in frame.file for each in _LIBRARY)), None)
    if own is None or own == frames[0]:
        return frame_text(frames[0])
    return f"{frame_text(frames[0])}, called by {frame_text(own)}"
