"""Replays the trace events of one device: how much was allocated over time, when the peak was, and by which stacks.

PyTorch records events in a ring buffer, so a history may start in the middle of a program. What was allocated before
its first event is computed backward from the segments, which show what is allocated after the last event.
"""

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from heapq import nlargest
from itertools import accumulate
from typing import Final, NamedTuple

from gpumon.core.timeline import Summary
from gpumon.snapshots.model import Allocation, Amount, History, MemorySeries, OomTraceEvent
from gpumon.snapshots.trace_table import EARLIER, Action, TraceEvents

COLUMNS: Final = 2000
"""Number of ranges in the series of a history."""
_MAX_OOMS: Final = 1000
_MICROSECOND: Final = 1e-6
_SIGNS: Final = {int(Action.SEGMENT_ALLOC): 1, int(Action.SEGMENT_FREE): -1}
_NEVER: Final = (1 << 32) - 1

AllocatedBlocks = Mapping[int, tuple[int, int]]
"""Allocated blocks: requested bytes and stack, by address."""


class ReplayResult(NamedTuple):
    """The result of a replay.

    Attributes:
        history: The history.
        at_peak: What was allocated at the peak, by stack.
        ever: Everything that was allocated in the history, by stack.
        stacks: The stacks of the blocks that are still allocated, by address, as far as the history has them.
        missing_bytes: Difference between the allocated bytes of the segments and those at the end of the history.
    """

    history: History
    at_peak: dict[int, Amount]
    ever: dict[int, Amount]
    stacks: dict[int, int]
    missing_bytes: int


class _ColumnSeries:
    """Lowest, last and highest value of each column, along one axis."""

    def __init__(self) -> None:
        self.columns: list[tuple[int, int, int]] = []
        self._low = self._high = 0

    def add_range(self, low: int, now: int, high: int, ended: int) -> None:
        """Add a range of events, and end a number of columns with it; all but the first of these are empty."""
        self._low, self._high = min(self._low, low), max(self._high, high)
        for _ in range(ended):
            self.columns.append((self._low, now, self._high))
            self._low = self._high = now


class _LevelTracker:
    """The current value of a quantity, and its series by time and by event."""

    def __init__(self) -> None:
        self.now = self.low = self.high = 0
        self.lowest = 0
        self._axes = (_ColumnSeries(), _ColumnSeries())

    def end_range(self, ended: tuple[int, int]) -> None:
        """End a range of events, and with it a number of columns along each axis."""
        for axis, count in zip(self._axes, ended, strict=True):
            axis.add_range(self.low, self.now, self.high, count)
        self.lowest = min(self.lowest, self.low)
        self.low = self.high = self.now

    def add(self, change: int) -> None:
        """Change the value."""
        self.now += change
        self.low = min(self.low, self.now)
        self.high = max(self.high, self.now)

    def series(self, base: int) -> Iterator[tuple[Summary, ...]]:
        """The columns along each axis, with a base value added."""
        for axis in self._axes:
            yield tuple(Summary(low + base, now + base, high + base) for low, now, high in axis.columns)


class Replay:
    """Replays the events of one device."""

    def __init__(self, events: TraceEvents, allocated: AllocatedBlocks, reserved_bytes: int) -> None:
        self._events = events
        self._final_blocks = allocated
        self._reserved_bytes = reserved_bytes
        self._free = Action.FREE if int(Action.FREE) in events.actions else Action.FREE_COMPLETED
        """The action that frees a block: a history may have been recorded without ``free_requested``."""
        self._allocated = _LevelTracker()
        self._reserved = _LevelTracker()
        self._alive: dict[int, int] = {}
        """The event that allocated each allocated block, by address."""
        self._ends = array("I", [_NEVER]) * len(events)
        """The event that freed the allocation of each event."""
        self._earlier: list[tuple[int, int]] = []
        """Blocks that were freed but not allocated in the history: the event, and the size in bytes."""
        self._ever: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
        self._peak = self._peak_reserved = 0
        self._peak_event = -1
        """The event of the peak; -1 if the value before the first event was never exceeded."""

    def run(self, largest: int = 0) -> ReplayResult:
        """Replay all events."""
        for begin, end, ended in self._time_ranges():
            self._replay_range(begin, end)
            self._allocated.end_range(ended)
            self._reserved.end_range(ended)
        base, reserved_base = self._bases()
        at_peak = self._at_peak(base)
        events = self._events
        times = _Clock(events)
        by_time, by_event = map(MemorySeries, self._allocated.series(base), self._reserved.series(reserved_base))
        history = History(
            events=len(events),
            begin_seconds=times.begin_us * _MICROSECOND,
            duration_seconds=times.seconds(len(events) - 1),
            by_time=by_time,
            by_event=by_event,
            peak=sum(at_peak.values(), Amount()),
            peak_seconds=times.seconds(max(0, self._peak_event)),
            peak_event=max(0, self._peak_event),
            peak_reserved_bytes=self._peak_reserved + reserved_base,
            earlier_bytes=base,
            ooms=tuple(self._ooms(times)),
            largest=tuple(self._largest(largest, times)),
        )
        ever = {stack: Amount(*amount) for stack, amount in self._ever.items()}
        stacks = {address: events.stacks[index] for address, index in self._alive.items()}
        missing = abs(sum(requested for requested, _ in self._final_blocks.values()) - base - self._allocated.now)
        return ReplayResult(history, at_peak, ever, stacks, missing)

    def _time_ranges(self) -> Iterator[tuple[int, int, tuple[int, int]]]:
        """Ranges of events that belong to the same columns, and how many columns along each axis end with them."""
        times = _Clock(self._events)
        count = len(self._events)
        by_time = [*accumulate((times.index_at(column / COLUMNS) for column in range(1, COLUMNS)), max), count]
        by_event = [column * count // COLUMNS for column in range(1, COLUMNS + 1)]
        time_ends, event_ends = Counter(by_time), Counter(by_event)
        begin = 0
        for end in sorted({*by_time, *by_event}):
            yield begin, end, (time_ends[end], event_ends[end])
            begin = end

    def _replay_range(self, begin: int, end: int) -> None:
        """The inner loop, which is optimized for long histories."""
        events, allocated, reserved = self._events, self._allocated, self._reserved
        alive, ever, ends, all_sizes = self._alive, self._ever, self._ends, events.sizes
        actions, addresses, sizes = events.actions[begin:end], events.addresses[begin:end], all_sizes[begin:end]
        level, low, high = allocated.now, allocated.low, allocated.high
        alloc, free = int(Action.ALLOC), int(self._free)  # comparing plain numbers is twice as fast
        for index, (action, address, size) in enumerate(zip(actions, addresses, sizes, strict=True), begin):
            if action == alloc:
                level += size
                alive[address] = index
                total = ever[events.stacks[index]]
                total[0] += size
                total[1] += 1
                if level > high:
                    high = level
                    if level > self._peak:
                        self._peak, self._peak_event, self._peak_reserved = level, index, reserved.now
            elif action == free:
                allocation = alive.pop(address, None)
                if allocation is not None:
                    ends[allocation] = index
                    level -= all_sizes[allocation]
                else:
                    self._earlier.append((index, size))
                    level -= size
                if level < low:  # noqa: PLR1730 - calling min() takes a second in a long history
                    low = level
            elif action in _SIGNS:
                reserved.add(_SIGNS[action] * size)
        allocated.now, allocated.low, allocated.high = level, low, high

    def _bases(self) -> tuple[int, int]:
        """Bytes allocated and reserved before the first event: at least what was freed later without an allocation."""
        allocated = sum(requested for requested, _ in self._final_blocks.values()) - self._allocated.now
        freed = sum(size for _, size in self._earlier)
        reserved = self._reserved_bytes - self._reserved.now
        return max(allocated, freed, -self._allocated.lowest), max(reserved, -self._reserved.lowest)

    def _at_peak(self, base: int) -> dict[int, Amount]:
        """What was allocated at the peak, by stack."""
        totals: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
        peak, events = self._peak_event, self._events
        stop = peak + 1
        columns = zip(events.actions[:stop], self._ends[:stop], events.sizes[:stop], events.stacks[:stop], strict=True)
        for action, end, size, stack in columns:
            if action == Action.ALLOC and end > peak:
                total = totals[stack]
                total[0] += size
                total[1] += 1
        later = [size for index, size in self._earlier if index > peak]
        rest = base - sum(size for index, size in self._earlier if index <= peak) - sum(later)
        for address, (requested, stack) in self._final_blocks.items():
            if address not in self._alive and requested <= rest:
                rest -= requested
                totals[stack or EARLIER][0] += requested
                totals[stack or EARLIER][1] += 1
        if rest + sum(later):
            totals[EARLIER][0] += rest + sum(later)
            totals[EARLIER][1] += len(later) + (rest > 0)
        return {stack: Amount(*total) for stack, total in totals.items()}

    def _ooms(self, times: "_Clock") -> Iterator[OomTraceEvent]:
        events = self._events
        for count, index in enumerate(events.indexes(Action.OOM)):
            if count >= _MAX_OOMS:
                return
            yield OomTraceEvent(
                times.seconds(index), index, events.sizes[index], events.addresses[index], events.stacks[index]
            )

    def _largest(self, count: int, times: "_Clock") -> Iterator[Allocation]:
        sizes = self._events.sizes
        indexes = nlargest(count, self._events.indexes(Action.ALLOC), key=sizes.__getitem__) if count else []
        for index in sorted(indexes):
            end = self._ends[index]
            freed = None if end == _NEVER else times.seconds(end)
            yield Allocation(times.seconds(index), freed, sizes[index], self._events.stacks[index])


class _Clock:
    """The times of events; where PyTorch records none, each event counts as one second."""

    def __init__(self, events: TraceEvents) -> None:
        self._times = events.times
        self._count = len(events)
        self.begin_us = events.times[0]

    def seconds(self, index: int) -> float:
        """Seconds from the first event to another."""
        if not self.begin_us:
            return float(index)
        return max(0, self._times[index] - self.begin_us) * _MICROSECOND

    def index_at(self, share: float) -> int:
        """The first event after a share of the duration."""
        if not self.begin_us:
            return int(share * self._count)
        span = max(0, self._times[-1] - self.begin_us)
        return bisect_left(self._times, self.begin_us + int(share * span))
