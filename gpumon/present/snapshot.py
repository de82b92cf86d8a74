"""The summary of a snapshot as text: what is allocated, the peak of its history, the segments, and notes."""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from gpumon.core.holes import SegmentLayout
from gpumon.core.units import bytes_text, counted, short_time_text, times_text
from gpumon.present.paint.line import Line, Role, Span, clipped, line, width_of, wrapped
from gpumon.snapshots.model import Amount, DeviceMemory, History, Snapshot, SnapshotFrame
from gpumon.snapshots.stack_tree import Measure
from gpumon.stacks.tables import is_program

_PATH_PARTS: Final = 2
_GAP: Final = "   "

MEASURES: Final = {Measure.NOW: "at the end", Measure.PEAK: "at the peak", Measure.EVER: "in total"}


def totals_lines(snapshot: Snapshot, device: DeviceMemory, width: int, *, is_brief: bool = False) -> list[Line]:
    """The summary of a device, with the most important value first in each line.

    Args:
        snapshot: The snapshot.
        device: One of its devices.
        width: Cells of a line.
        is_brief: Whether to shorten segments and history to one line each.
    """
    max_lines = 1 if is_brief else None
    lines = flowed(_segment_parts(device), width)[:max_lines]
    if device.history is not None:
        lines += flowed(_history_parts(device.history), width)[:max_lines]
        lines += _failure_lines(snapshot, device.history, width)
    notes = (*snapshot.notes, *device.notes)
    return [*lines, *(line(Span(f" {piece}", Role.DIM)) for note in notes for piece in wrapped(note, width - 1))]


def flowed(parts: Sequence[str], width: int) -> list[Line]:
    """Arrange parts in lines, as many in each as fit; the first part is highlighted."""
    rows: list[list[str]] = [[]]
    for part in parts:
        if rows[-1] and width_of(f" {_GAP.join((*rows[-1], part))}") > width:
            rows.append([])
        rows[-1].append(clipped(part, width - 1))
    first, *others = (_GAP.join(row) for row in rows)
    head = clipped(parts[0], width - 1)
    return [line(Span(f" {head}", Role.ACCENT), first[len(head) :]), *(line(f" {row}") for row in others)]


def _segment_parts(device: DeviceMemory) -> list[str]:
    now = sum((use.now for use in device.uses), Amount())
    layout = SegmentLayout(device.segments, device.ordinal)
    holes = layout.holes
    if not device.segments:
        return [f"cuda:{device.ordinal}", "no segments"]
    return [
        f"cuda:{device.ordinal}  {bytes_text(now.bytes)} in {counted(now.blocks, 'block')}",
        f"{bytes_text(holes.size)} reserved",
        f"{bytes_text(holes.free)} of that free, {bytes_text(holes.releasable)} in empty segments",
        f"largest hole {bytes_text(holes.largest)}, fragmentation {holes.fragmentation:.0%}",
        f"{counted(len(layout.segments), 'segment')}",
    ]


def _history_parts(history: History) -> list[str]:
    duration = f" in {short_time_text(history.duration_seconds)}" if history.has_times else ""
    return [
        f"Peak    {bytes_text(history.peak.bytes)} in {counted(history.peak.blocks, 'block')}",
        f"{when_text(history, history.peak_seconds)}, {bytes_text(history.peak_reserved_bytes)} reserved",
        f"{history.events:,} events{duration}",
        f"{bytes_text(history.earlier_bytes)} allocated before the first one",
    ]


def _failure_lines(snapshot: Snapshot, history: History, width: int) -> Iterator[Line]:
    if history.ooms:
        last = history.ooms[-1]
        text = (
            f"! Out of memory {times_text(len(history.ooms))}, last {when_text(history, last.seconds)}: "
            f"{bytes_text(last.bytes)} requested with {bytes_text(last.free_bytes)} free, "
            f"by {who_text(snapshot.frames_of(last.stack))}"
        )
        yield from (line(Span(f" {piece}", Role.ERROR)) for piece in wrapped(text, width - 1))


def when_text(history: History, seconds: float) -> str:
    """A time in a history, or the number of the event where there are no times."""
    return f"after {short_time_text(seconds)}" if history.has_times else f"at event {seconds:,.0f}"


def place_text(frame: SnapshotFrame) -> str:
    """The location of a frame: the end of its path, and the line."""
    if not frame.file:
        return ""
    return f"{'/'.join(PurePosixPath(frame.file).parts[-_PATH_PARTS:])}:{frame.line}"


def frame_text(frame: SnapshotFrame) -> str:
    """A frame as one line."""
    place = place_text(frame)
    return f"{frame.name} {place}" if place else frame.name


def who_text(frames: tuple[SnapshotFrame, ...]) -> str:
    """The innermost frame of a stack, and the innermost one outside of libraries."""
    own = next((frame for frame in frames if frame.file and is_program(frame.file)), None)
    if own is None or own == frames[0]:
        return frame_text(frames[0])
    return f"{frame_text(frames[0])}, called by {frame_text(own)}"


def change_text(change: int) -> str:
    """A change with its sign."""
    return f"{'-' if change < 0 else '+'}{bytes_text(abs(change))}" if change else "0 B"
