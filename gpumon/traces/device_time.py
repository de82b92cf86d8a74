"""The time of a GPU: at each moment the class of the work that comes first, or the reason why it did nothing.

The reasons are a wait for data, a call that waited for the GPU, a late launch, or none of these. Without a GPU, the
time is that of a thread by operator: at each moment the innermost one.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from gpumon.core.step_classes import (
    COPIES,
    CPU_CLASSES,
    CPU_MATMUL,
    CPU_OPERATORS,
    DATA,
    GPU_CLASSES,
    HOST,
    IDLE,
    MEMORY,
    SYNC,
)
from gpumon.traces.host_work import HostWork
from gpumon.traces.kinds import Kind, is_data_wait, kernel_class
from gpumon.traces.pieces import NO_EVENT, Interval, TimePiece, TimePieces, remainder
from gpumon.traces.table import EventTable

WORK_KINDS: Final = frozenset((Kind.KERNEL, Kind.COPY, Kind.MEMSET))
_MEMORY: Final = GPU_CLASSES.index(MEMORY)
_COPIES: Final = GPU_CLASSES.index(COPIES)
_DATA: Final = GPU_CLASSES.index(DATA)
_SYNC: Final = GPU_CLASSES.index(SYNC)
_HOST: Final = GPU_CLASSES.index(HOST)
_IDLE: Final = GPU_CLASSES.index(IDLE)
_RETURN_NS: Final = 5_000
"""A call that waits for the GPU returns a little after the GPU has finished."""
_START_NS: Final = 30_000
"""Work that starts this soon after its launch was waited for by the GPU; a longer time means that it was queued."""
_MIN_ACTIVE_SHARE: Final = 0.5
BETWEEN_OPERATORS: Final = "Python and other code between operators"
QUEUED: Final = "between kernels that were queued already"
NO_WORK: Final = "no further work in the trace"
UNKNOWN: Final = "no launch was recorded"


def work_events(table: EventTable) -> tuple[str | None, list[int]]:
    """The GPU with the most work, and the events on it in the order of their begin."""
    kinds, lanes = table.kinds, table.lanes
    work = [index for index in range(len(table)) if kinds[index] in WORK_KINDS]
    if not work:
        return None, []
    time: Counter[str] = Counter()
    for index in work:
        time[table.lane_keys[lanes[index]].process] += 1 + table.ends[index] - table.begins[index]
    device = max(time, key=lambda name: time[name])
    on_device = {number for number, key in enumerate(table.lane_keys) if key.is_device and key.process == device}
    work = [index for index in work if lanes[index] in on_device]
    work.sort(key=table.begins.__getitem__)
    return device, work


def work_class(table: EventTable, index: int) -> int:
    """The number of the class of an event on a GPU."""
    kind, name = table.kinds[index], table.texts[table.names[index]]
    if kind == Kind.KERNEL:
        return GPU_CLASSES.index(kernel_class(name))
    if kind == Kind.MEMSET or "DtoD" in name or "ArrayToDevice" in name:
        return _MEMORY  # a copy within the GPU takes its memory bandwidth, as an elementwise kernel does
    return _COPIES


def divide_device_time(
    table: EventTable, work: list[int], pieces: TimePieces, on_idle: Callable[[int, int, int], None]
) -> None:
    """Add the pieces of work of a GPU in order, and report each time without work when it is its turn.

    ``on_idle`` is called with the begin and the end of a time without work, and the event that ends it.
    """
    begins, ends = table.begins, table.ends
    group: list[int] = []
    group_end = 0
    for index in work:
        begin = begins[index]
        if group and begin >= group_end:
            _divide(table, group, pieces)
            if begin > group_end:
                on_idle(group_end, begin, index)
            group = []
        group_end = ends[index] if not group else max(group_end, ends[index])
        group.append(index)
    if group:
        _divide(table, group, pieces)


def _divide(table: EventTable, group: list[int], pieces: TimePieces) -> None:
    """Divide the time of events that overlap: each moment belongs to the event whose class comes first."""
    if len(group) == 1:
        (index,) = group
        pieces.add(table.begins[index], table.ends[index], work_class(table, index), table.names[index], index)
        return
    bounds = sorted(
        [(table.begins[index], 1, index) for index in group] + [(table.ends[index], 0, index) for index in group]
    )
    active: list[dict[int, None]] = [{} for _ in GPU_CLASSES]
    before = bounds[0][0]
    for time, is_begin, index in bounds:
        if time > before:
            share = next((number for number, events in enumerate(active) if events), None)
            if share is not None:
                current = next(iter(active[share]))
                pieces.add(before, time, share, table.names[current], current)
            before = time
        events = active[work_class(table, index)]
        if is_begin and table.ends[index] > table.begins[index]:
            events[index] = None
        else:
            events.pop(index, None)


class IdleGap(NamedTuple):
    """A time in which the GPU did nothing; ``pieces`` divide it."""

    begin: int
    end: int
    next_event: int | None
    pieces: tuple[TimePiece, ...]


class IdleReasons:
    """Divides the times without work on the GPU into classes, by their reasons."""

    def __init__(self, table: EventTable, host: HostWork) -> None:
        self._table = table
        self._host = host

    def divide(self, begin: int, end: int, next_event: int | None) -> IdleGap:
        """Divide a time without work; the pieces cover it completely.

        ``next_event`` is the event on the GPU that ends it; None after the last one.
        """
        pieces: list[TimePiece] = []
        data = list(self._host.data.overlapping(begin, end))
        pieces += self._named(data, _DATA)
        launch = None if next_event is None else self._host.launches.get(self._table.correlations[next_event])
        lane = self._host.main_lane if launch is None else self._table.lanes[launch]
        share, reason = self._share(begin, end, next_event, launch)
        for first, last in remainder(begin, end, data):
            waits = self._sync_waits(begin, first, last)
            pieces += self._named(waits, _SYNC)
            for left, right in remainder(first, last, waits):
                pieces += self._rest(left, right, share, reason, lane)
        return IdleGap(begin, end, next_event, tuple(sorted(pieces)))

    def _sync_waits(self, gap_begin: int, begin: int, end: int) -> list[Interval]:
        """The parts of a time that calls which wait for the GPU take.

        A call that waited until the GPU had finished kept the host from launching ahead. Without it, the host would be
        ahead by the duration of the call, so as much of the gap after it belongs to it.
        """
        waits = []
        cause = self._host.blocking.at(gap_begin, _RETURN_NS)
        if cause is not None and cause.begin < gap_begin:
            last = min(end, gap_begin + cause.end - cause.begin)
            if last > begin:
                waits.append(Interval(begin, last, cause.event))
        start = waits[0].end if waits else begin
        return waits + [item for item in self._host.blocking.overlapping(start, end) if item.end > item.begin]

    def _share(self, begin: int, end: int, next_event: int | None, launch: int | None) -> tuple[int, str]:
        """The class of what neither data nor synchronization explains, and its name if it has one."""
        if launch is not None:
            called = self._table.begins[launch]
            is_late = called >= begin or end - called <= _START_NS
            return (_HOST, "") if is_late else (_IDLE, QUEUED)
        lane = self._host.main_lane
        if next_event is None:
            return _IDLE, NO_WORK
        if lane is not None:
            operators = self._host.outer_operators(lane).overlapping(begin, end)
            if sum(item.end - item.begin for item in operators) >= _MIN_ACTIVE_SHARE * (end - begin):
                return _HOST, ""
        return _IDLE, UNKNOWN

    def _rest(self, begin: int, end: int, share: int, reason: str, lane: int | None) -> list[TimePiece]:
        if share == _IDLE or lane is None:
            number = self._table.number_of(reason or BETWEEN_OPERATORS)
            return [TimePiece(begin, end, share, number, NO_EVENT)]
        interruptions = list(self._host.interruptions.overlapping(begin, end))
        pieces = self._named(interruptions, _HOST)
        between = self._table.number_of(BETWEEN_OPERATORS)
        for first, last in remainder(begin, end, interruptions):
            operators = list(self._host.outer_operators(lane).overlapping(first, last))
            pieces += self._named(operators, _HOST)
            pieces += [
                TimePiece(left, right, _HOST, between, NO_EVENT) for left, right in remainder(first, last, operators)
            ]
        return pieces

    def _named(self, intervals: Sequence[Interval], share: int) -> list[TimePiece]:
        names = self._table.names
        return [TimePiece(item.begin, item.end, share, names[item.event], item.event) for item in intervals]


def add_gap(pieces: TimePieces, gap: IdleGap) -> None:
    """Add the pieces of a gap to a timeline."""
    for piece in gap.pieces:
        pieces.add(*piece)


_MATMUL: Final = re.compile(
    r"::(mm|bmm|addmm|baddbmm|addmv|mv|matmul|linear|dot|convolution|_convolution|convolution_backward|mkldnn_\w+"
    r"|conv\d?d?\w*|thnn_conv\w*|_?scaled_dot_product\w*|_efficient_attention\w*|lstm|gru)$"
)
_CPU_DATA: Final = CPU_CLASSES.index(DATA)
_MATMULS: Final = CPU_CLASSES.index(CPU_MATMUL)
_OPERATORS: Final = CPU_CLASSES.index(CPU_OPERATORS)


def operator_class(name: str) -> int:
    """The number of the class of an operator in `CPU_CLASSES`."""
    return _MATMULS if _MATMUL.search(name) else _OPERATORS


def operator_pieces(table: EventTable, lane: int) -> TimePieces:
    """The time of a thread: each moment belongs to the innermost operator, and in a wait for data to the wait."""
    pieces = TimePieces()
    is_data = [is_data_wait(text) for text in table.texts]
    classes = [operator_class(text) for text in table.texts]
    names, kinds = table.names, table.kinds
    chosen = [
        index
        for index in range(len(table))
        if table.lanes[index] == lane
        and (kinds[index] == Kind.OPERATOR or (kinds[index] == Kind.ANNOTATION and is_data[names[index]]))
    ]
    table.sort(chosen)

    def add(begin: int, end: int, index: int, wait: int | None) -> None:
        owner = index if wait is None else wait
        share = classes[names[owner]] if wait is None else _CPU_DATA
        pieces.add(begin, end, share, names[owner], owner)

    innermost_pieces(table, chosen, lambda index: is_data[names[index]], add)
    return pieces


def innermost_pieces(
    table: EventTable,
    chosen: list[int],
    is_wait: Callable[[int], bool],
    add: Callable[[int, int, int, int | None], None],
) -> None:
    """Call ``add`` with each piece of time in which the innermost event of a thread stays the same.

    Args:
        table: The events.
        chosen: Indexes of the events of the thread, in the order of their begin, the outer ones first.
        is_wait: Whether all that happens within an event belongs to it.
        add: Called with the begin, the end, the innermost event, and the outermost wait around it.
    """
    stack: list[tuple[int, int, int | None]] = []
    position = 0

    def close(until: int) -> None:
        nonlocal position
        while stack and stack[-1][0] <= until:
            end, index, wait = stack.pop()
            if end > position:
                add(position, end, index, wait)
                position = end

    for index in chosen:
        begin, end = table.begins[index], table.ends[index]
        close(begin)
        wait = index if is_wait(index) else None
        if stack:
            outer_end, outer, outer_wait = stack[-1]
            if begin > position:
                add(position, begin, outer, outer_wait)
            end = min(end, outer_end)
            wait = wait if outer_wait is None else outer_wait
        position = max(position, begin) if stack else begin
        stack.append((end, index, wait))
    if stack:
        close(stack[0][0])
