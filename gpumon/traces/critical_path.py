"""The critical path of a step, and how long the step takes with a change: the longest path through its graph.

A step is executed again on paper: each part of the host and each work of the GPU begins as soon as all that it waits
for is done. With the times of the trace, this gives its critical path; with a part removed or shortened, the step
without it. As the host may be ahead of the GPU, a step of many is executed several times in a row; the last one counts.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.core.step_classes import GPU_CLASSES, HOST, IDLE, SYNC
from gpumon.traces.device_time import QUEUED
from gpumon.traces.pieces import TimePiece
from gpumon.traces.step_graph import GAP_NS, LAST, NEVER, StepGraph
from gpumon.traces.table import EventTable

_STEPS: Final = 3
_HOST: Final = GPU_CLASSES.index(HOST)
_SYNC: Final = GPU_CLASSES.index(SYNC)
_IDLE: Final = GPU_CLASSES.index(IDLE)
LAUNCH_DELAY: Final = "from a launch to the begin of its kernel"
_PART, _RETURN, _WORK = range(3)
_NONE: Final = -1
_Element = tuple[int, int, int, int, int, int]
"""What was executed: a part of the host, the return from a wait, or work; its number; its begin and end; the element
that it waited for, and until when the path belongs to that one."""


class Reached(NamedTuple):
    """When something is done, and how much of the longest path to it is work of the GPU, in nanoseconds.

    Attributes:
        time: When.
        device: How much.
        element: The element that is done then, if they are recorded.
    """

    time: int
    device: int
    element: int = _NONE


class Change(NamedTuple):
    """What is removed or shortened.

    Attributes:
        host: Factors for the times of the host, by tag; the empty tag is for all others.
        device: The new duration of each work; None for that of the trace.
        ignored_waits: Tags of the calls that no longer wait for the GPU.
        gap_ns: Longest time between two kernels of a stream; None for that of the trace.
        removed: Numbers of the parts of the host that are removed.
    """

    host: Mapping[str, float] = {}
    device: Sequence[int] | None = None
    ignored_waits: Collection[str] = ()
    gap_ns: int | None = None
    removed: Collection[int] = ()


def step_time(graph: StepGraph, change: Change) -> Reached:
    """How long a step takes with a change, and how much of that is work of the GPU."""
    execution = _Execution(graph, change, [Reached(NEVER, 0)] * len(graph.backlog))
    before, end = Reached(0, 0), Reached(0, 0)
    for _ in range(_STEPS if graph.is_repeated else 1):
        before, end = end, execution.step()
    return Reached(end.time - before.time, end.device - before.device)


def critical_path(table: EventTable, graph: StepGraph) -> list[tuple[int, TimePiece]]:
    """The longest path through a step, from its begin on: times, and the piece of the trace that each is spent on."""
    execution = _Execution(graph, Change(), [Reached(time, 0) for time in graph.backlog], is_recorded=True)
    end = execution.step()
    element, first, until = end.element, graph.begin, min(graph.end, end.time)
    path: list[tuple[int, TimePiece]] = []
    while element != _NONE and until > first:
        kind, number, begin, end_of_element, before, since = execution.elements[element]
        pieces = [
            (min(last, until) - max(start, first), piece)
            for start, last, piece in _pieces_of(table, graph, (kind, number, begin, end_of_element))
        ]
        path += reversed([item for item in pieces if item[0] > 0])
        until = min(begin, until)
        delay = until - max(since, first)
        if delay > 0:
            is_queued = before != _NONE and execution.elements[before][0] == _WORK
            name, share = (QUEUED, _IDLE) if is_queued else (LAUNCH_DELAY, _HOST)
            event = graph.work[number].event
            moment = table.begins[event]
            path.append((delay, TimePiece(moment, moment, share, table.number_of(name), event)))
            until -= delay
        element = before
    return path[::-1]


def _pieces_of(
    table: EventTable, graph: StepGraph, element: tuple[int, int, int, int]
) -> Iterator[tuple[int, int, TimePiece]]:
    """When an element was executed, by its pieces in the trace."""
    kind, number, begin, end = element
    if kind == _WORK:
        _, _, share, *_ = work = graph.work[number]
        event = work.event
        yield begin, end, TimePiece(table.begins[event], table.ends[event], share, table.names[event], event)
        return
    part = graph.parts[number]
    for piece in part.pieces:
        time = end - begin if len(part.pieces) == 1 else piece.length
        span = (piece.begin, piece.end)
        if part.waits:  # of a wait, the path has the begin of the call or the return from it; the rest is the GPU's
            span = (piece.end - time, piece.end) if kind == _RETURN else (piece.begin, piece.begin + time)
        share = _SYNC if part.waits else piece.share
        yield begin, begin + time, piece._replace(begin=span[0], end=span[1], share=share)
        begin += time


class _Execution:
    """Executes a step, or several in a row.

    ``backlog`` is, by stream, when the work before the first step is done.

    Attributes:
        elements: What was executed, in this order.
    """

    def __init__(
        self, graph: StepGraph, change: Change, backlog: Sequence[Reached], *, is_recorded: bool = False
    ) -> None:
        self.elements: list[_Element] = []
        self._graph = graph
        self._is_recorded = is_recorded
        self._gap = -NEVER if change.gap_ns is None else change.gap_ns
        usual = change.host.get("", 1.0)
        self._times = [
            0
            if number in change.removed
            else round(sum(t * change.host.get(tag, usual) for tag, t in part.times.items()))
            for number, part in enumerate(graph.parts)
        ]
        self._waits = [
            () if part.waits and not part.times.keys().isdisjoint(change.ignored_waits) else part.waits
            for part in graph.parts
        ]
        self._device = [item.time for item in graph.work] if change.device is None else change.device
        self._host = Reached(0, 0)
        self._done = [[item] for item in backlog]
        """By stream, when each work of the step is done; first that before the step."""

    def step(self) -> Reached:
        """Execute the next step, until the host and all streams are done."""
        self._done = [[items[-1]] for items in self._done]
        time, device, element = self._host
        for number, part in enumerate(self._graph.parts):
            begin, time = time, time + self._times[number]
            if self._is_recorded:
                element = self._record((_PART, number, begin, time, element, begin))
            for index, offset in part.launches:
                self._launch(index, min(begin + offset, time), device, element)
            for stream, count, lag in self._waits[number]:
                done = self._done[stream][count]
                if done.time + lag > time:
                    time, device, element = done.time + lag, done.device, done.element
                    if self._is_recorded:
                        element = self._record((_RETURN, number, done.time, time, element, done.time))
        self._host = Reached(time, device, element)
        return max(self._host, *(items[-1] for items in self._done)) if self._done else self._host

    def _launch(self, index: int, moment: int, device: int, element: int) -> None:
        """Have a stream do work as soon as possible."""
        item, time = self._graph.work[index], self._device[index]
        begin, since = moment + item.launch_lag, moment
        for stream, count, lag in item.after:
            done = self._done[stream][count]
            if count == LAST and lag > self._gap * bool(time):  # work that is removed leaves no gap
                lag = self._gap * bool(time)  # noqa: PLW2901
            if done.time + lag > begin:
                begin, since, element = done.time + lag, done.time, done.element
                device = done.device + min(lag, GAP_NS)
        if self._is_recorded:
            element = self._record((_WORK, index, begin, begin + time, element, min(since, begin)))
        self._done[item.stream].append(Reached(begin + time, device + time, element))

    def _record(self, element: _Element) -> int:
        self.elements.append(element)
        return len(self.elements) - 1
