"""The events of a timeline as columns in memory that two processes share: the child writes them, gpumon maps them."""

import mmap
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gpumon.core.groups import grouped
from gpumon.core.step_classes import CPU_CLASSES, CPU_MATMUL, CPU_OPERATORS, CPU_OUTSIDE, DATA, GPU_CLASSES, HOST, SYNC
from gpumon.traces.device_time import WORK_KINDS, work_class
from gpumon.traces.kinds import Kind, is_blocking_call, is_blocking_operator, is_data_wait
from gpumon.traces.model import Lane
from gpumon.traces.pieces import TimePiece
from gpumon.traces.table import EventTable

TIMELINE_CLASSES: Final = (*GPU_CLASSES, "operator", "runtime", "python", "annotation")
"""What an event on the timeline is; the classes of the account come first."""
FIRST_FRAME: Final = TIMELINE_CLASSES.index("python")
"""From this class on, an event is the context of others: it does not make a thread busy."""
BINS: Final = 8192
"""Parts of the trace for which the share of each lane is computed in advance."""
_ENTRY_BYTES: Final = 8 + 8 + 4 + 1
_FULL: Final = 255
_DATA: Final = TIMELINE_CLASSES.index(DATA)
_SYNC: Final = TIMELINE_CLASSES.index(SYNC)
_BY_KIND: Final = {
    Kind.OPERATOR: TIMELINE_CLASSES.index("operator"),
    Kind.RUNTIME: TIMELINE_CLASSES.index("runtime"),
    Kind.PYTHON: TIMELINE_CLASSES.index("python"),
    Kind.ANNOTATION: TIMELINE_CLASSES.index("annotation"),
}
_OF_CLASS: Final = {
    **{name: number for number, name in enumerate(TIMELINE_CLASSES)},
    CPU_MATMUL: _BY_KIND[Kind.OPERATOR],
    CPU_OPERATORS: _BY_KIND[Kind.OPERATOR],
    CPU_OUTSIDE: TIMELINE_CLASSES.index(HOST),
}
_HIDDEN: Final = frozenset((Kind.GPU_ANNOTATION, Kind.CUDA_SYNC, Kind.OVERHEAD))
"""Kinds that lie over others on a stream and are no work."""


CRITICAL_PATH: Final = "critical path"
"""The label of the lane with the critical path of the median step."""


def write_columns(
    table: EventTable, path: Sequence[TimePiece], begin: int, duration: int, descriptor: int
) -> tuple[Lane, ...]:
    """Write the columns to a file, lane by lane, and return the lanes: the critical path, streams, threads."""
    by_lane = grouped((table.lanes[index], index) for index in range(len(table)) if table.kinds[index] not in _HIDDEN)
    lanes: list[tuple[Lane, bytes, bytes]] = []
    classes = _classes(table)
    columns = (array("q"), array("q"), array("I"), array("B"))
    for column, values in zip(columns, zip(*_on_path(table, path, begin), strict=True), strict=False):
        column.extend(values)
    if columns[0]:
        busy, shares, kinds = _bins(columns, 0, duration)
        lanes.append((Lane(CRITICAL_PATH, True, 0, len(columns[0]), busy), shares, kinds))
    for number, indexes in by_lane.items():
        table.sort(indexes)
        first = len(columns[0])
        columns[0].extend([table.begins[index] - begin for index in indexes])
        columns[1].extend([table.ends[index] - begin for index in indexes])
        columns[2].extend([table.names[index] for index in indexes])
        columns[3].extend([classes(index) for index in indexes])
        busy, shares, kinds = _bins(columns, first, duration)
        label, is_device = _label(table, number)
        lanes.append((Lane(label, is_device, first, len(indexes), busy), shares, kinds))
        by_lane[number] = []
    lanes.sort(key=lambda item: (item[0].label != CRITICAL_PATH, not item[0].is_device, -item[0].busy_ns))
    with open(descriptor, "wb", closefd=False) as file:
        for column in columns:
            column.tofile(file)
        for _, shares, kinds in lanes:
            file.write(shares + kinds)
    return tuple(lane for lane, _, _ in lanes)


def _on_path(table: EventTable, path: Sequence[TimePiece], begin: int) -> Iterator[tuple[int, int, int, int]]:
    """The pieces of a critical path in order, without overlaps."""
    classes = GPU_CLASSES if any(key.is_device for key in table.lane_keys) else CPU_CLASSES
    until = begin
    for piece in sorted(path):
        if piece.end > until:
            yield max(piece.begin, until) - begin, piece.end - begin, piece.name, _OF_CLASS[classes[piece.share]]
            until = piece.end


def _classes(table: EventTable) -> Callable[[int], int]:
    """A function from an event to the number of its class in `TIMELINE_CLASSES`."""
    by_name: dict[tuple[int, int], int] = {}

    def of(index: int) -> int:
        kind = table.kinds[index]
        key = (kind, table.names[index])
        number = by_name.get(key)
        if number is None:
            name = table.texts[key[1]]
            if kind in WORK_KINDS:
                number = work_class(table, index)
            elif kind == Kind.ANNOTATION and is_data_wait(name):
                number = _DATA
            elif (kind == Kind.RUNTIME and is_blocking_call(name)) or is_blocking_operator(name):
                number = _SYNC
            else:
                number = _BY_KIND[Kind(kind)]
            by_name[key] = number
        return number

    return of


def _bins(columns: "tuple[array[int], ...]", first: int, duration: int) -> tuple[int, bytes, bytes]:
    """The busy time of the last lane, and for each bin its busy share and the class of its longest outermost event."""
    begins, ends, _, kinds = columns
    size = max(1, -(-duration // BINS))
    busy = [0] * BINS
    best: list[tuple[int, int]] = [(0, 0)] * BINS
    until = 0
    for index in range(first, len(begins)):
        begin, end = max(begins[index], until), ends[index]
        if end <= begin or kinds[index] >= FIRST_FRAME:
            continue
        until = end
        bin_number = begin // size
        while begin < end and bin_number < BINS:
            piece = min(end, (bin_number + 1) * size) - begin
            busy[bin_number] += piece
            if piece > best[bin_number][0]:
                best[bin_number] = (piece, kinds[index])
            begin += piece
            bin_number += 1
    shares = bytes(min(_FULL, -(-time * _FULL // size)) for time in busy)
    return sum(busy), shares, bytes(kind for _, kind in best)


def _label(table: EventTable, number: int) -> tuple[str, bool]:
    """The name of a lane, and whether it is a stream."""
    key = table.lane_keys[number]
    if key.is_device:
        return f"GPU {key.process} stream {key.thread}", True
    name = table.thread_names.get((key.process, key.thread), "")
    return name or f"thread {key.thread}", False


class TraceColumns:
    """The columns as gpumon maps them.

    The descriptor may be closed afterwards; the lanes are those of `write_columns`.

    Attributes:
        begins: Begin of each event, from the begin of the trace.
        ends: End of each event.
        names: Index of the name of each event.
        classes: Number of the class of each event in `TIMELINE_CLASSES`.
    """

    def __init__(self, descriptor: int, lanes: tuple[Lane, ...]) -> None:
        count = sum(lane.count for lane in lanes)
        size = os.fstat(descriptor).st_size
        is_outside = any(lane.first + lane.count > count for lane in lanes)
        if is_outside or size != count * _ENTRY_BYTES + len(lanes) * 2 * BINS:
            raise ValueError("the columns do not fit to the lanes")
        self._lanes = lanes
        self._bins_at = count * _ENTRY_BYTES
        view = memoryview(mmap.mmap(descriptor, size, prot=mmap.PROT_READ)) if size else memoryview(b"")
        self._view = view
        self.begins = view[: 8 * count].cast("q")
        self.ends = view[8 * count : 16 * count].cast("q")
        self.names = view[16 * count : 20 * count].cast("I")
        self.classes = view[20 * count : 21 * count]

    def shares(self, lane: int) -> memoryview:
        """The busy share of each bin of a lane, from 0 to 255."""
        at = self._bins_at + lane * 2 * BINS
        return self._view[at : at + BINS]

    def bin_classes(self, lane: int) -> memoryview:
        """The class of each bin of a lane."""
        at = self._bins_at + lane * 2 * BINS + BINS
        return self._view[at : at + BINS]
