"""A snapshot as text output: its summary, the largest stacks, the segments, and the changes."""

from collections.abc import Iterable, Iterator
from typing import Final

from gpumon.core.holes import SegmentLayout
from gpumon.core.units import bytes_text, counted
from gpumon.present.paint.line import Line, Role, Span, clipped, line
from gpumon.present.snapshot import MEASURES, change_text, totals_lines, who_text
from gpumon.snapshots.model import DeviceMemory, Snapshot
from gpumon.snapshots.stack_tree import Measure, StackShare, stack_amounts, stack_changes

_SIZE_WIDTH: Final = 10
_BLOCKS_WIDTH: Final = 8


def report_lines(snapshot: Snapshot, top: int, width: int, earlier: Snapshot | None = None) -> Iterator[Line]:
    """All lines of the report, the most important first.

    Args:
        snapshot: The snapshot.
        top: Limit on the stacks, changes and segment groups of each device.
        width: Cells of a line.
        earlier: The snapshot to compare with, or None.
    """
    if not snapshot.devices:
        yield line(f"{snapshot.name} is empty: it has no segments and no history.")
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
    shares = sorted(stack_amounts(snapshot, device, measure, innermost_first=True), key=_by_weight)
    total = sum(share.amount.bytes for share in shares)
    if not shares:
        return
    yield from _heading(f"By stack, {MEASURES[measure]}: {bytes_text(total)}")
    for share in shares[:top]:
        part = f"{share.amount.bytes / total:>5.0%}" if total else ""
        columns = f"{bytes_text(share.amount.bytes):>{_SIZE_WIDTH}} {part} {share.amount.blocks:>{_BLOCKS_WIDTH},}"
        yield line(clipped(f"{columns}  {who_text(share.frames)}", width))
    yield from _rest_line(shares[top:])


def _change_lines(earlier: Snapshot, snapshot: Snapshot, device: DeviceMemory, top: int, width: int) -> Iterator[Line]:
    before = next((other for other in earlier.devices if other.ordinal == device.ordinal), None)
    shares = sorted(
        stack_changes((earlier, before), (snapshot, device), Measure.NOW, innermost_first=True), key=_by_weight
    )
    total = sum(share.amount.bytes - share.before.bytes for share in shares)
    yield from _heading(f"Changed since {earlier.name}, {MEASURES[Measure.NOW]}: {change_text(total)}")
    for share in shares[:top]:
        change = change_text(share.amount.bytes - share.before.bytes)
        columns = f"{change:>{_SIZE_WIDTH + 1}} {bytes_text(share.amount.bytes):>{_SIZE_WIDTH}}"
        yield line(clipped(f"{columns}  {who_text(share.frames)}", width))
    yield from _rest_line(shares[top:])


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
        text = f"{counted(len(group.segments), f'{kind} segment')} in the {pool}{stream}: {free}"
        fragmented = f"fragmentation {holes.fragmentation:.0%}"
        yield line(clipped(f"{bytes_text(holes.size):>{_SIZE_WIDTH}}  {text}{fragmented}", width))


def _heading(text: str) -> Iterator[Line]:
    yield line("")
    yield line(Span(text, Role.HEADING))


def _rest_line(left_out: list[StackShare]) -> Iterable[Line]:
    if left_out:
        size = sum(share.amount.bytes for share in left_out)
        yield line(Span(f"{bytes_text(size):>{_SIZE_WIDTH}}  in {counted(len(left_out), 'more stack')}", Role.DIM))


def _by_weight(share: StackShare) -> tuple[int, int]:
    return -share.weight, -share.amount.bytes
