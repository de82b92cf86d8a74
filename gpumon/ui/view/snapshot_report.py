"""A snapshot as text for a shell: the totals, the largest stacks, the segments, and what has changed."""

from collections.abc import Iterable, Iterator
from typing import Final

from gpumon.core.holes import SegmentLayout
from gpumon.core.units import bytes_text
from gpumon.snapshots.difference import changes
from gpumon.snapshots.model import DeviceMemory, Snapshot
from gpumon.snapshots.tree import Measure, Share, shares
from gpumon.ui.paint.line import Line, Role, Span, clipped, line
from gpumon.ui.view.snapshot import MEASURES, count_text, totals_lines, who_text

_SIZE: Final = 10
_BLOCKS: Final = 8


def report_lines(snapshot: Snapshot, top: int, width: int, earlier: Snapshot | None = None) -> Iterator[Line]:
    """Everything, the most important first.

    Args:
        snapshot: The file.
        top: So many stacks, changes and groups of segments of each device.
        width: Cells of a line.
        earlier: A file that it is compared with.
    """
    if not snapshot.devices:
        yield line(f"{snapshot.name} holds nothing: no device had memory, and nothing was recorded.")
    for device in snapshot.devices:
        yield line(Span(f"{snapshot.name}, {bytes_text(snapshot.size_bytes)}", Role.HEADING))
        yield from totals_lines(snapshot, device, width)
        if earlier is not None:
            yield from _change_lines(earlier, snapshot, device, top, width)
        measures = (Measure.NOW,) if device.history is None else (Measure.PEAK, Measure.NOW)
        for measure in measures:
            yield from _stack_lines(snapshot, device, measure, top, width)
        yield from _group_lines(device, top, width)
        yield line("")


def _stack_lines(snapshot: Snapshot, device: DeviceMemory, measure: Measure, top: int, width: int) -> Iterator[Line]:
    found = sorted(shares(snapshot, device, measure, innermost_first=True), key=_by_weight)
    total = sum(share.amount.bytes for share in found)
    if not found:
        return
    yield from _heading(f"By stack, {MEASURES[measure]}: {bytes_text(total)}")
    for share in found[:top]:
        part = f"{share.amount.bytes / total:>5.0%}" if total else ""
        figures = f"{bytes_text(share.amount.bytes):>{_SIZE}} {part} {share.amount.blocks:>{_BLOCKS},}"
        yield line(clipped(f"{figures}  {who_text(share.frames)}", width))
    yield from _rest(found[top:])


def _change_lines(earlier: Snapshot, snapshot: Snapshot, device: DeviceMemory, top: int, width: int) -> Iterator[Line]:
    before = next((each for each in earlier.devices if each.ordinal == device.ordinal), None)
    found = sorted(changes((earlier, before), (snapshot, device), Measure.NOW, innermost_first=True), key=_by_weight)
    total = sum(share.amount.bytes - share.before.bytes for share in found)
    yield from _heading(f"Changed since {earlier.name}, {MEASURES[Measure.NOW]}: {change_text(total)}")
    for share in found[:top]:
        change = change_text(share.amount.bytes - share.before.bytes)
        figures = f"{change:>{_SIZE + 1}} {bytes_text(share.amount.bytes):>{_SIZE}}"
        yield line(clipped(f"{figures}  {who_text(share.frames)}", width))
    yield from _rest(found[top:])


def _group_lines(device: DeviceMemory, top: int, width: int) -> Iterator[Line]:
    groups = SegmentLayout(device.segments, device.ordinal).groups
    if not groups:
        return
    yield from _heading("Segments, by pool and stream")
    for group in groups[:top]:
        holes = group.holes
        kind = "large" if group.is_large else "small"
        pool = "shared pool" if group.pool == (0, 0) else f"private pool {group.pool[0]}.{group.pool[1]}"
        stream = f" of stream {group.stream:#x}" if group.stream else ""
        free = f"{bytes_text(holes.free)} free, largest hole {bytes_text(holes.largest)}, "
        told = f"{count_text(len(group.segments), f'{kind} segment')} in the {pool}{stream}: {free}"
        fragmented = f"fragmentation {holes.fragmentation:.0%}"
        yield line(clipped(f"{bytes_text(holes.size):>{_SIZE}}  {told}{fragmented}", width))


def change_text(change: int) -> str:
    """A change with its sign."""
    return f"{'-' if change < 0 else '+'}{bytes_text(abs(change))}" if change else "0 B"


def _heading(text: str) -> Iterator[Line]:
    yield line("")
    yield line(Span(text, Role.HEADING))


def _rest(left_out: list[Share]) -> Iterable[Line]:
    if left_out:
        size = sum(share.amount.bytes for share in left_out)
        yield line(Span(f"{bytes_text(size):>{_SIZE}}  in {count_text(len(left_out), 'more stack')}", Role.DIM))


def _by_weight(share: Share) -> tuple[int, int]:
    return -share.weight, -share.amount.bytes
