"""The work of a GPU over time: at each moment the class that comes first, and the times without any work."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from gpumon.core.step_classes import COPIES, GPU_CLASSES, MEMORY
from gpumon.traces.kinds import Kind, kernel_class
from gpumon.traces.pieces import TimePieces
from gpumon.traces.table import EventTable

WORK_KINDS: Final = frozenset((Kind.KERNEL, Kind.COPY, Kind.MEMSET))
_MEMORY: Final = GPU_CLASSES.index(MEMORY)
_COPIES: Final = GPU_CLASSES.index(COPIES)


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

    Args:
        table: The events.
        work: Indexes of the events on the GPU in the order of their begin.
        pieces: Receives the pieces.
        on_idle: Called with the begin and the end of a time without work, and the event that ends it.
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
