"""What the threads of the host did: waits for data, calls that wait for the GPU, operators, lines of the program."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Final

from gpumon.traces.kinds import (
    Kind,
    is_allocation,
    is_blocking_call,
    is_blocking_operator,
    is_copy_call,
    is_data_wait,
    is_gc,
    is_launch,
    is_user_line,
    user_line_of,
)
from gpumon.traces.pieces import Interval, Intervals
from gpumon.traces.table import EventTable

_BLOCKING_COPY_NS: Final = 50_000
"""A call that only enqueues a copy returns sooner; one that copies from or to pageable memory waits."""


class HostWork:
    """The events of the host, arranged for questions about a moment.

    Attributes:
        main_lane: The thread that runs the training loop, or None without one.
        data: The waits for the next batch.
        blocking: Calls and operators that wait for the GPU.
        interruptions: Garbage collection and allocations of device memory.
        launches: The call that launched the work with a correlation.
        graph_launches: Begins of the launches of CUDA graphs.
        blocking_events: The calls and operators of `blocking`, also those within others.
        stream_waits: By lane of a stream, when it was made to wait for another one: the time of that call, the lane of
            the other stream, and up to which time of launches it waits.
    """

    def __init__(self, table: EventTable) -> None:
        self._table = table
        self.launches: dict[int, int] = {}
        self.graph_launches: list[int] = []
        self._lines: dict[int, list[Interval]] = {}
        self._operators: dict[int, Intervals] = {}
        traits = [_traits(text) for text in table.texts]
        special: dict[str, list[Interval]] = {"data": [], "blocking": [], "interruption": []}
        counts: dict[int, Counter[int]] = {kind: Counter() for kind in (Kind.ANNOTATION, Kind.RUNTIME, Kind.OPERATOR)}
        for index in range(len(table)):
            kind = table.kinds[index]
            trait = traits[table.names[index]].get(kind, "")
            if kind in counts:
                counts[kind][table.lanes[index]] += 1
            if kind == Kind.OPERATOR and index in table.call_stacks:
                self._lines.setdefault(table.lanes[index], []).append(self.interval(index))
            if not trait:
                continue
            if trait == "line":
                self._lines.setdefault(table.lanes[index], []).append(self.interval(index))
            elif trait in special:
                special[trait].append(self.interval(index))
            else:
                self._add_launch(index, is_graph=trait == "graph launch")
                if trait == "copy launch" and table.ends[index] - table.begins[index] >= _BLOCKING_COPY_NS:
                    special["blocking"].append(self.interval(index))
        launching = {table.lanes[index] for index in self.launches.values()}
        main = next((lanes.most_common(1)[0][0] for lanes in counts.values() if lanes), None)
        self.main_lane = main
        threads = launching | ({main} if main is not None else set())
        self.data, self.blocking, self.interruptions = (
            Intervals([item for item in items if table.lanes[item.event] in threads]) for items in special.values()
        )
        self.blocking_events = {item.event for item in special["blocking"] if table.lanes[item.event] in threads}
        self.stream_waits = _stream_waits(table)
        for items in self._lines.values():
            items.sort()
        self._line_begins = {lane: [item.begin for item in items] for lane, items in self._lines.items()}
        self._longer = {lane: _earlier_with_later_end(items) for lane, items in self._lines.items()}

    def _add_launch(self, index: int, *, is_graph: bool) -> None:
        if self._table.correlations[index]:
            self.launches[self._table.correlations[index]] = index
        if is_graph:
            self.graph_launches.append(self._table.begins[index])

    def interval(self, index: int) -> Interval:
        """The time of an event."""
        return Interval(self._table.begins[index], self._table.ends[index], index)

    def outer_operators(self, lane: int) -> Intervals:
        """The operators of a thread that no other operator called."""
        if lane not in self._operators:
            table = self._table
            self._operators[lane] = Intervals(
                [
                    self.interval(index)
                    for index in range(len(table))
                    if table.lanes[index] == lane and table.kinds[index] in {Kind.OPERATOR, Kind.RUNTIME}
                ]
            )
        return self._operators[lane]

    def line_at(self, lane: int | None, moment: int) -> str:
        """The innermost line of the program at a moment; empty where the trace has no stacks."""
        if lane is None or lane not in self._lines:
            return ""
        items = self._lines[lane]
        index = bisect_right(self._line_begins[lane], moment) - 1
        while index >= 0:
            if items[index].end < moment:
                index = self._longer[lane][index]
                continue
            event = items[index].event
            stack = self._table.call_stacks.get(event)
            text = self._table.texts[self._table.names[event] if stack is None else stack]
            if line := text if stack is None else user_line_of(text):
                return line
            index -= 1
        return ""


def _earlier_with_later_end(items: Sequence[Interval]) -> list[int]:
    """For each interval, the index of the last one before it that ends later; -1 for none."""
    result: list[int] = []
    open_ones: list[int] = []
    for index, item in enumerate(items):
        while open_ones and items[open_ones[-1]].end <= item.end:
            open_ones.pop()
        result.append(open_ones[-1] if open_ones else -1)
        open_ones.append(index)
    return result


def _stream_waits(table: EventTable) -> dict[int, list[tuple[int, int, int]]]:
    """The waits of streams for events that were recorded on other streams, where the trace has them."""
    if not table.event_waits:
        return {}
    records = {
        table.correlations[index]: table.begins[index]
        for index, kind in enumerate(table.kinds)
        if kind == Kind.RUNTIME and "EventRecord" in table.texts[table.names[index]]
    }
    streams = {(key.process, key.thread): lane for lane, key in enumerate(table.lane_keys) if key.is_device}
    waits: dict[int, list[tuple[int, int, int]]] = {}
    for index, (stream, correlation) in table.event_waits.items():
        key = table.lane_keys[table.lanes[index]]
        other, recorded = streams.get((key.process, stream)), records.get(correlation)
        if other is not None and recorded is not None:
            waits.setdefault(table.lanes[index], []).append((table.begins[index], other, recorded))
    return waits


def _traits(name: str) -> dict[int, str]:
    """What an event with a name means, by its kind."""
    traits: dict[int, str] = {}
    if is_gc(name):
        traits = dict.fromkeys((Kind.PYTHON, Kind.ANNOTATION, Kind.OVERHEAD), "interruption")
    elif is_user_line(name):
        traits[Kind.PYTHON] = "line"
    if is_data_wait(name):
        traits[Kind.ANNOTATION] = "data"
    if is_blocking_operator(name):
        traits[Kind.OPERATOR] = "blocking"
    if is_blocking_call(name):
        traits[Kind.RUNTIME] = "blocking"
    elif is_allocation(name):
        traits[Kind.RUNTIME] = "interruption"
    elif is_launch(name):
        traits[Kind.RUNTIME] = "graph launch" if "GraphLaunch" in name else "launch"
        if is_copy_call(name):
            traits[Kind.RUNTIME] = "copy launch"
    return traits
