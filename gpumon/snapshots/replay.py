"""Follows the events of one device through time: how much was allocated, when most, and by whom.

A history is a ring: it may begin in the middle of a program. How much was allocated before it follows from its end,
where what is allocated is known from the segments: the events in between are taken off again.
"""

from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from heapq import nlargest
from itertools import accumulate
from typing import Final, NamedTuple

from gpumon.core.timeline import Summary
from gpumon.snapshots.model import Allocation, Amount, Course, History, OutOfMemory
from gpumon.snapshots.tables import EARLIER, Action, Events

COLUMNS: Final = 2000
"""Stretches that the course of a history is kept in."""
_MOST_OOMS: Final = 1000
_MICROSECOND: Final = 1e-6
_SIGNS: Final = {int(Action.SEGMENT_ALLOC): 1, int(Action.SEGMENT_FREE): -1}
_NEVER: Final = (1 << 32) - 1

Held = Mapping[int, tuple[int, int]]
"""Allocated blocks: bytes that were asked for and the stack, by address."""


class Replayed(NamedTuple):
    """What came of it.

    Attributes:
        history: The course.
        at_peak: What was allocated at the peak, by stack.
        ever: All that the history tells, by stack.
        stacks: Who allocated what is allocated in the end, by address, as far as the history tells.
        missing_bytes: By so much the end of the history and the segments disagree.
    """

    history: History
    at_peak: dict[int, Amount]
    ever: dict[int, Amount]
    stacks: dict[int, int]
    missing_bytes: int


class _Axis:
    """The course of something in columns of one kind."""

    def __init__(self) -> None:
        self.columns: list[tuple[int, int, int]] = []
        self._low = self._high = 0

    def take(self, low: int, now: int, high: int, ended: int) -> None:
        """Takes in a stretch, and ends so many columns with it; all but the first of them are empty."""
        self._low, self._high = min(self._low, low), max(self._high, high)
        for _ in range(ended):
            self.columns.append((self._low, now, self._high))
            self._low = self._high = now


class _Level:
    """How much there is of something, and the course of that, by time and by event."""

    def __init__(self) -> None:
        self.now = self.low = self.high = 0
        self.lowest = 0
        self._axes = (_Axis(), _Axis())

    def end_stretch(self, ended: tuple[int, int]) -> None:
        """Ends a stretch, and with it so many columns of each kind."""
        for axis, count in zip(self._axes, ended, strict=True):
            axis.take(self.low, self.now, self.high, count)
        self.lowest = min(self.lowest, self.low)
        self.low = self.high = self.now

    def add(self, change: int) -> None:
        """It changes."""
        self.now += change
        self.low = min(self.low, self.now)
        self.high = max(self.high, self.now)

    def courses(self, base: int) -> Iterator[tuple[Summary, ...]]:
        """The columns of each kind, above a level."""
        for axis in self._axes:
            yield tuple(Summary(low + base, now + base, high + base) for low, now, high in axis.columns)


class Replay:
    """Follows the events of one device.

    Args:
        events: The events, at least one.
        held: What is allocated after the last one, as the segments tell.
        reserved_bytes: What is reserved then.
    """

    def __init__(self, events: Events, held: Held, reserved_bytes: int) -> None:
        self._events = events
        self._held = held
        self._reserved_bytes = reserved_bytes
        self._free = Action.FREE if int(Action.FREE) in events.actions else Action.FREE_COMPLETED
        """What frees: a history may have been told to leave out the requests."""
        self._allocated = _Level()
        self._reserved = _Level()
        self._alive: dict[int, int] = {}
        """The event that allocated what is allocated, by address."""
        self._ends = array("I", [_NEVER]) * len(events)
        """The event that freed what an event allocated."""
        self._earlier: list[tuple[int, int]] = []
        """When something was freed whose allocation is not told, and its bytes."""
        self._ever: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
        self._peak = self._peak_reserved = 0
        self._peak_place = -1
        """The event that brought the peak; before the first one if nothing rose above what was there then."""

    def run(self, largest: int = 0) -> Replayed:
        """Follows them all.

        Args:
            largest: How many of the largest allocations are wanted one by one.
        """
        for begin, end, ended in self._stretches():
            self._follow(begin, end)
            self._allocated.end_stretch(ended)
            self._reserved.end_stretch(ended)
        base, reserved_base = self._bases()
        at_peak = self._at_peak(base)
        events = self._events
        times = _Times(events)
        by_time, by_event = map(Course, self._allocated.courses(base), self._reserved.courses(reserved_base))
        history = History(
            events=len(events),
            begin_seconds=times.begin_us * _MICROSECOND,
            duration_seconds=times.seconds(len(events) - 1),
            by_time=by_time,
            by_event=by_event,
            peak=sum(at_peak.values(), Amount()),
            peak_seconds=times.seconds(max(0, self._peak_place)),
            peak_event=max(0, self._peak_place),
            peak_reserved_bytes=self._peak_reserved + reserved_base,
            earlier_bytes=base,
            ooms=tuple(self._ooms(times)),
            largest=tuple(self._largest(largest, times)),
        )
        ever = {stack: Amount(*amount) for stack, amount in self._ever.items()}
        stacks = {address: events.stacks[place] for address, place in self._alive.items()}
        missing = abs(sum(asked for asked, _ in self._held.values()) - base - self._allocated.now)
        return Replayed(history, at_peak, ever, stacks, missing)

    def _stretches(self) -> Iterator[tuple[int, int, tuple[int, int]]]:
        """Events that belong to the same columns, and how many columns of each kind end with them."""
        times = _Times(self._events)
        count = len(self._events)
        by_time = [*accumulate((times.place(column / COLUMNS) for column in range(1, COLUMNS)), max), count]
        by_event = [column * count // COLUMNS for column in range(1, COLUMNS + 1)]
        time_ends, event_ends = Counter(by_time), Counter(by_event)
        begin = 0
        for end in sorted({*by_time, *by_event}):
            yield begin, end, (time_ends[end], event_ends[end])
            begin = end

    def _follow(self, begin: int, end: int) -> None:
        """The loop that a long history goes through."""
        events, allocated, reserved = self._events, self._allocated, self._reserved
        alive, ever, ends, all_sizes = self._alive, self._ever, self._ends, events.sizes
        actions, addresses, sizes = events.actions[begin:end], events.addresses[begin:end], all_sizes[begin:end]
        level, low, high = allocated.now, allocated.low, allocated.high
        alloc, free = int(Action.ALLOC), int(self._free)  # plain numbers are compared twice as fast
        for place, (action, address, size) in enumerate(zip(actions, addresses, sizes, strict=True), begin):
            if action == alloc:
                level += size
                alive[address] = place
                total = ever[events.stacks[place]]
                total[0] += size
                total[1] += 1
                if level > high:
                    high = level
                    if level > self._peak:
                        self._peak, self._peak_place, self._peak_reserved = level, place, reserved.now
            elif action == free:
                allocation = alive.pop(address, None)
                if allocation is not None:
                    ends[allocation] = place
                    level -= all_sizes[allocation]
                else:
                    self._earlier.append((place, size))
                    level -= size
                if level < low:  # noqa: PLR1730 - a call would cost a second in a long history
                    low = level
            elif action in _SIGNS:
                reserved.add(_SIGNS[action] * size)
        allocated.now, allocated.low, allocated.high = level, low, high

    def _bases(self) -> tuple[int, int]:
        """What was allocated and reserved before the first event; never less than what was given back later."""
        allocated = sum(asked for asked, _ in self._held.values()) - self._allocated.now
        freed = sum(size for _, size in self._earlier)
        reserved = self._reserved_bytes - self._reserved.now
        return max(allocated, freed, -self._allocated.lowest), max(reserved, -self._reserved.lowest)

    def _at_peak(self, base: int) -> dict[int, Amount]:
        """What was allocated at the peak, by stack."""
        found: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
        peak, events = self._peak_place, self._events
        stop = peak + 1
        columns = zip(events.actions[:stop], self._ends[:stop], events.sizes[:stop], events.stacks[:stop], strict=True)
        for action, end, size, stack in columns:
            if action == Action.ALLOC and end > peak:
                total = found[stack]
                total[0] += size
                total[1] += 1
        later = [size for place, size in self._earlier if place > peak]
        rest = base - sum(size for place, size in self._earlier if place <= peak) - sum(later)
        for address, (asked, stack) in self._held.items():
            if address not in self._alive and asked <= rest:
                rest -= asked
                found[stack or EARLIER][0] += asked
                found[stack or EARLIER][1] += 1
        if rest + sum(later):
            found[EARLIER][0] += rest + sum(later)
            found[EARLIER][1] += len(later) + (rest > 0)
        return {stack: Amount(*total) for stack, total in found.items()}

    def _ooms(self, times: "_Times") -> Iterator[OutOfMemory]:
        events = self._events
        for count, place in enumerate(events.places(Action.OOM)):
            if count >= _MOST_OOMS:
                return
            yield OutOfMemory(
                times.seconds(place), place, events.sizes[place], events.addresses[place], events.stacks[place]
            )

    def _largest(self, count: int, times: "_Times") -> Iterator[Allocation]:
        sizes = self._events.sizes
        places = nlargest(count, self._events.places(Action.ALLOC), key=sizes.__getitem__) if count else []
        for place in sorted(places):
            end = self._ends[place]
            ended = None if end == _NEVER else times.seconds(end)
            yield Allocation(times.seconds(place), ended, sizes[place], self._events.stacks[place])


class _Times:
    """When events were; where a PyTorch keeps no times, an event counts as a second."""

    def __init__(self, events: Events) -> None:
        self._times = events.times
        self._count = len(events)
        self.begin_us = events.times[0]

    def seconds(self, place: int) -> float:
        """Seconds since the first one."""
        if not self.begin_us:
            return float(place)
        return max(0, self._times[place] - self.begin_us) * _MICROSECOND

    def place(self, share: float) -> int:
        """The first event after a share of the time."""
        if not self.begin_us:
            return int(share * self._count)
        span = max(0, self._times[-1] - self.begin_us)
        return bisect_left(self._times, self.begin_us + int(share * span))
