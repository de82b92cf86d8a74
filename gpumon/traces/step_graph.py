"""The dependencies within a step: what each call of the host and each work of the GPU had to wait for.

The host is one chain: the main thread, and in its gaps the threads that launch in its place, such as autograd's. It
gives work to streams, which do theirs in order; work may also wait for another stream, and the host for the GPU.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median_low
from typing import Final, NamedTuple

from gpumon.core.step_classes import COPIES, CPU_CLASSES, CPU_OUTSIDE, DATA, GPU_CLASSES, HOST
from gpumon.traces.device_time import BETWEEN_OPERATORS, innermost_pieces, operator_class, work_class
from gpumon.traces.host_work import HostWork
from gpumon.traces.kinds import COPYING, Kind, is_allocation, is_data_wait, is_freeing, is_gc, is_launch
from gpumon.traces.pieces import NO_EVENT, TimePiece
from gpumon.traces.steps import StepRange
from gpumon.traces.table import EventTable

COLLECTING: Final = "collecting"
FREEING: Final = "freeing"
NEVER: Final = -(1 << 60)
"""A moment before all others."""
LAST: Final = -1
"""In place of a number of works: all work of the stream so far."""
_LAUNCH_NS: Final = 5_000
"""From the begin of a launch to that of its work, where no launch of the step shows it."""
GAP_NS: Final = 1_000
"""Between two kernels that are queued; also after the end of work on another stream."""
_RETURN_NS: Final = 5_000
"""A call that waits for the GPU takes this long if there is nothing to wait for."""
_INFERRED_NS: Final = 10_000
"""Work that begins this soon after that of another stream has ended, and for no other reason, waited for it."""
_FULL_QUEUE: Final = 256
_FULL_QUEUE_RATIO: Final = 1.5
"""A launch that takes longer than this many usual ones while as much work is queued waits until the queue has room."""


class After(NamedTuple):
    """Work that something waits for: the first ``works`` ones of a stream, and then ``lag`` nanoseconds more."""

    stream: int
    works: int
    lag: int


@dataclass(slots=True)
class HostPart:
    """A part of the host's chain: several pieces, or one that launches work or waits for some.

    Attributes:
        pieces: The pieces.
        times: Nanoseconds of the chain by tag; those of a wait are what the call takes without it. The tag is why a
            cure could remove them: `COPIES`, `DATA`, `COLLECTING`, `FREEING`, or empty.
        launches: Work that it launches, with the offset from its begin.
        waits: Work that must be done before it ends.
    """

    pieces: list[TimePiece]
    times: dict[str, int]
    launches: list[tuple[int, int]] = field(default_factory=list)
    waits: tuple[After, ...] = ()


class DeviceWork(NamedTuple):
    """A kernel or a copy.

    Attributes:
        event: The event.
        stream: Number of its stream.
        share: Number of its class.
        time: How long it takes.
        launch_lag: Time from its launch until it can begin.
        after: Work that it waits for: first that before it in its stream, then that of other streams.
    """

    event: int
    stream: int
    share: int
    time: int
    launch_lag: int
    after: tuple[After, ...]


@dataclass(frozen=True, slots=True)
class StepGraph:
    """A step as a graph. Its times are from the begin of the step on the host on.

    Attributes:
        parts: The chain of the host, in order.
        work: Work of the GPU, in the order of its launches.
        backlog: By stream, when the work before the step ends.
        begin: When the step of the GPU begins.
        end: When it ends.
        is_repeated: Whether the step is one of many, so that the host may begin the next one before the GPU is done.
    """

    parts: list[HostPart]
    work: list[DeviceWork]
    backlog: list[int]
    begin: int
    end: int
    is_repeated: bool


NO_GRAPH: Final = StepGraph([], [], [], 0, 0, is_repeated=False)


class GraphBuilder:
    """Builds the graph of a step."""

    def __init__(self, table: EventTable, host: HostWork, work: list[int]) -> None:
        self._table = table
        self._host = host
        self._events = work
        self._tags = [_tag(text) for text in table.texts]
        self._streams: dict[int, int] = {}
        self._ends: list[list[int]] = []
        """By stream, when the work of the step ends; first the end of that before the step."""
        self._launched: list[list[int]] = []
        """By stream, when the host launched the work of the step."""

    def build(self, step: StepRange, on_device: StepRange, *, is_repeated: bool) -> StepGraph:
        """The graph of a step.

        The step has its begin and its end on the host, and on the GPU.
        """
        pieces = self._host_pieces(step)
        launches = self._launches(step)
        work = []
        for moment, event in launches:
            work.append(self._work(event, moment))
            self._ends[work[-1].stream].append(self._table.ends[event])
            self._launched[work[-1].stream].append(moment)
        return StepGraph(
            list(self._parts(pieces, launches)),
            _with_usual_lags(work),
            [ends[0] - step.begin for ends in self._ends],
            on_device.begin - step.begin,
            on_device.end - step.begin,
            is_repeated,
        )

    def _host_pieces(self, step: StepRange) -> list[TimePiece]:
        """The chain of the host: the innermost event at each moment, or none."""
        table, lanes = self._table, defaultdict[int, list[int]](list)
        helpers = {table.lanes[launch] for launch in self._host.launches.values()}
        is_autograd = [text.startswith("autograd::engine") for text in table.texts]
        for index, kind in enumerate(table.kinds):
            if table.begins[index] < step.end and table.ends[index] > step.begin:
                name = table.names[index]
                is_around = kind in {Kind.ANNOTATION, Kind.PYTHON, Kind.OVERHEAD} and self._is_around(index)
                if kind in {Kind.OPERATOR, Kind.RUNTIME} or is_around:
                    lanes[table.lanes[index]].append(index)
                if is_autograd[name]:
                    helpers.add(table.lanes[index])
        chain: list[TimePiece] = []
        main = self._host.main_lane
        for lane in sorted(lanes.keys() & (helpers | {main}), key=lambda lane: (lane != main, -len(lanes[lane]))):
            chain = list(_filled(chain, self._innermost(lanes[lane], step)))
        rest = GPU_CLASSES.index(HOST) if self._events else CPU_CLASSES.index(CPU_OUTSIDE)
        nothing = TimePiece(step.begin, step.end, rest, table.number_of(BETWEEN_OPERATORS), NO_EVENT)
        self._tags += [""] * (len(table.texts) - len(self._tags))
        return list(_filled(chain, [nothing]))

    def _is_around(self, index: int) -> bool:
        """Whether all that happens within an event belongs to it: a wait for data, or garbage collection."""
        return self._tags[self._table.names[index]] in {DATA, COLLECTING}

    def _innermost(self, indexes: list[int], step: StepRange) -> list[TimePiece]:
        table, pieces = self._table, list[TimePiece]()
        classes = GPU_CLASSES if self._events else CPU_CLASSES
        table.sort(indexes)

        def add(begin: int, end: int, index: int, outer: int | None) -> None:
            first, last = max(begin, step.begin), min(end, step.end)
            if last > first:
                name = table.names[index if outer is None else outer]
                share = classes.index(HOST) if self._events else operator_class(table.texts[name])
                share = classes.index(DATA) if self._tags[name] == DATA else share
                pieces.append(TimePiece(first, last, share, name, index))

        innermost_pieces(table, indexes, self._is_around, add)
        return pieces

    def _launches(self, step: StepRange) -> list[tuple[int, int]]:
        """When the work of the step was launched, and the work; sorted. Remembers when the work before it ended."""
        table, launches = self._table, []
        before = defaultdict[int, int](lambda: NEVER)
        for event in self._events:
            moment = self._launch_of(event)
            if moment < step.begin:
                before[table.lanes[event]] = max(before[table.lanes[event]], table.ends[event])
            elif moment < step.end:
                launches.append((moment, event))
        launches.sort()
        for lane in dict.fromkeys(table.lanes[event] for _, event in launches):
            self._streams[lane] = len(self._streams)
            self._ends.append([before[lane]])
            self._launched.append([])
        return launches

    @cached_property
    def _all_work(self) -> tuple[list[int], list[int]]:
        """When all work of the trace was launched, and when it ended; each sorted.

        Work without a launch was queued before the recording began, and launches without work are still queued at its
        end.
        """
        table, launches = self._table, self._host.launches
        launched = [table.begins[call] for call in launches.values()]
        launched += [NEVER for event in self._events if table.correlations[event] not in launches]
        return sorted(launched), sorted(map(table.ends.__getitem__, self._events))

    def _launch_of(self, event: int) -> int:
        """When work was launched; when it began where that was not recorded."""
        call = self._host.launches.get(self._table.correlations[event])
        return self._table.begins[event if call is None else call]

    def _work(self, event: int, launch: int) -> DeviceWork:
        """The work with the lags that were observed: from each of what it may have waited for to its begin."""
        table = self._table
        stream, begin = self._streams[table.lanes[event]], table.begins[event]
        before = self._ends[stream]
        after = [After(stream, LAST, begin - before[-1]), *self._explicit(event, stream, launch)]
        if min(begin - launch - _LAUNCH_NS, *(item.lag for item in after)) > GAP_NS:
            after += self._inferred(stream, begin)
        launch_lag = begin - launch if table.correlations[event] in self._host.launches else NEVER
        return DeviceWork(event, stream, work_class(table, event), table.ends[event] - begin, launch_lag, tuple(after))

    def _explicit(self, event: int, stream: int, launch: int) -> Iterator[After]:
        """What the stream was made to wait for since its last work, by calls of cudaStreamWaitEvent."""
        first = self._launched[stream][-1] if self._launched[stream] else NEVER
        for moment, lane, recorded in self._host.stream_waits.get(self._table.lanes[event], ()):
            other = self._streams.get(lane, stream)
            if first < moment <= launch and other != stream:
                count = bisect_right(self._launched[other], recorded)
                lag = self._table.begins[event] - self._ends[other][count]
                if 0 <= lag < -NEVER:
                    yield After(other, count, lag)

    def _inferred(self, stream: int, begin: int) -> list[After]:
        """The work of another stream that ended just before a moment; empty without one."""
        candidates = []
        for other, ends in enumerate(self._ends):
            count = bisect_right(ends, begin) - 1
            if other != stream and count >= 0 and begin - ends[count] <= _INFERRED_NS:
                candidates.append(After(other, count, begin - ends[count]))
        return sorted(candidates, key=lambda item: item.lag)[:1]

    def _parts(self, pieces: list[TimePiece], launches: list[tuple[int, int]]) -> Iterator[HostPart]:
        """The pieces as parts: those between two launches or waits become one."""
        is_call = [is_launch(text) for text in self._table.texts]
        is_send = ["HtoD (Pageable" in text for text in self._table.texts]
        calls = [piece.length for piece in pieces if piece.event >= 0 and is_call[piece.name]]
        usual = median_low(calls) if calls else _LAUNCH_NS
        part = HostPart([], {})
        at, has_sent = 0, False
        for piece in pieces:
            first = at
            while at < len(launches) and launches[at][0] < piece.end:
                at += 1
            (waits, is_blocked), time = self._waits(piece), piece.length
            if at > first:
                had_sent, has_sent = has_sent, any(is_send[self._table.names[event]] for _, event in launches[first:at])
                if had_sent and has_sent:  # from one copy to the next, the host prepares the latter
                    part.times = {COPIES: sum(part.times.values())}
            # a copy from pageable memory waits for the stream afterwards
            tag = COPIES if has_sent and (at > first or waits) else self._tags[piece.name]
            if at == first and not waits:
                part.pieces.append(piece)
                part.times[tag] = part.times.get(tag, 0) + time
                continue
            if is_blocked:
                time = min(time, _RETURN_NS)
            elif time > _FULL_QUEUE_RATIO * usual and is_call[piece.name] and self._queued(piece) >= _FULL_QUEUE:
                time = usual
            offsets = [(number, min(launches[number][0] - piece.begin, time)) for number in range(first, at)]
            yield from (part, HostPart([piece], {tag: time}, offsets, waits))
            part = HostPart([], {})
        yield part

    def _queued(self, piece: TimePiece) -> int:
        """How much work is queued at the end of a launch, of this step and of those before it."""
        launched, ends = self._all_work
        return bisect_left(launched, piece.begin) - bisect_right(ends, piece.end)

    def _waits(self, piece: TimePiece) -> tuple[tuple[After, ...], bool]:
        """The work that a call waits for, which was done by its end; and whether it took a part of the call."""
        if piece.event not in self._host.blocking_events:
            return (), False
        waits = []
        for stream, (launched, ends) in enumerate(zip(self._launched, self._ends, strict=True)):
            count = min(bisect_left(launched, piece.end), bisect_right(ends, piece.end) - 1)
            if count >= 0 and ends[count] > NEVER:
                waits.append(After(stream, count, piece.end - ends[count]))
        last = min((item.lag for item in waits), default=piece.length)
        if last >= piece.length:
            return tuple(item._replace(lag=0) for item in waits), False
        return tuple(item._replace(lag=last if item.lag == last else min(item.lag, GAP_NS)) for item in waits), True


def _tag(name: str) -> str:
    if is_data_wait(name):
        return DATA
    if is_gc(name):
        return COLLECTING
    if name in COPYING:
        return COPIES
    return FREEING if is_freeing(name) or is_allocation(name) else ""


def _filled(chain: Sequence[TimePiece], others: Sequence[TimePiece]) -> Iterator[TimePiece]:
    """The chain, with pieces of another thread where it has none."""
    at, position = 0, NEVER
    for other in others:
        while at < len(chain) and chain[at].begin < other.end:
            if chain[at].begin > max(other.begin, position):
                yield other._replace(begin=max(other.begin, position), end=chain[at].begin)
            yield chain[at]
            position = chain[at].end
            at += 1
        if other.end > max(other.begin, position):
            yield other._replace(begin=max(other.begin, position))
            position = other.end
    yield from chain[at:]


def _with_usual_lags(work: list[DeviceWork]) -> list[DeviceWork]:
    """The work with its lags: the observed one after what it waited for, and at most the usual one after the rest."""
    alone = [item.launch_lag for item in work if 0 <= item.launch_lag < item.after[0].lag]
    usual = median_low(alone) if alone else _LAUNCH_NS
    result = []
    for item in work:
        # What the work waited for is the condition that was met last, with its usual lag.
        last = min(item.after, key=lambda other: other.lag)
        is_launched = NEVER < item.launch_lag - usual < last.lag - GAP_NS
        launch = item.launch_lag if is_launched else min(item.launch_lag, usual)
        after = tuple(
            other if other is last and not is_launched else other._replace(lag=min(other.lag, GAP_NS))
            for other in item.after
        )
        result.append(item._replace(launch_lag=launch, after=after))
    return result
