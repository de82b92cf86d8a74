"""Pieces of time that belong to one class each: in order, and none overlaps another."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

NO_EVENT: Final = -1


class TimePiece(NamedTuple):
    """A piece of time.

    Attributes:
        begin: Its begin in nanoseconds.
        end: Its end in nanoseconds.
        share: Number of its class.
        name: Number of the text that names what it is spent on.
        event: Index of the event that it belongs to, or `NO_EVENT`.
    """

    begin: int
    end: int
    share: int
    name: int
    event: int

    @property
    def length(self) -> int:
        """Its length in nanoseconds."""
        return self.end - self.begin


class TimePieces:
    """The pieces of a timeline, added in order."""

    def __init__(self) -> None:
        self._begins = array("q")
        self._ends = array("q")
        self._shares = array("B")
        self._names = array("I")
        self._events = array("q")

    def __len__(self) -> int:
        return len(self._begins)

    def add(self, begin: int, end: int, share: int, name: int, event: int) -> None:
        """Add a piece; what overlaps the piece before is cut off."""
        if self._ends and begin < self._ends[-1]:
            begin = self._ends[-1]
        if end <= begin:
            return
        if (
            event != NO_EVENT
            and self._ends
            and (self._ends[-1], self._events[-1], self._shares[-1]) == (begin, event, share)
        ):
            self._ends[-1] = end
            return
        self._begins.append(begin)
        self._ends.append(end)
        self._shares.append(share)
        self._names.append(name)
        self._events.append(event)

    def within(self, begin: int, end: int) -> Iterator[TimePiece]:
        """The pieces in a time range, cut at its ends."""
        for index in range(max(0, bisect_right(self._begins, begin) - 1), len(self._begins)):
            first, last = max(begin, self._begins[index]), min(end, self._ends[index])
            if self._begins[index] >= end:
                return
            if last > first:
                yield TimePiece(first, last, self._shares[index], self._names[index], self._events[index])


class Interval(NamedTuple):
    """A time range and the event that it belongs to."""

    begin: int
    end: int
    event: int


class Intervals:
    """Time ranges of which none overlaps another; a range that lies in another one belongs to the outer one."""

    def __init__(self, ranges: Sequence[Interval]) -> None:
        self.items: list[Interval] = []
        last = None
        by_end = sorted(ranges, key=attrgetter("end"), reverse=True)
        for item in sorted(by_end, key=attrgetter("begin")):
            begin = item.begin if last is None else max(item.begin, last)
            if item.end > begin:
                self.items.append(Interval(begin, item.end, item.event))
                last = item.end
        self._begins = [item.begin for item in self.items]

    def overlapping(self, begin: int, end: int) -> Iterator[Interval]:
        """The ranges within a time range, cut at its ends."""
        for index in range(max(0, bisect_right(self._begins, begin) - 1), len(self.items)):
            item = self.items[index]
            if item.begin >= end:
                return
            if item.end > begin:
                yield Interval(max(begin, item.begin), min(end, item.end), item.event)

    def at(self, moment: int, slack: int = 0) -> Interval | None:
        """The range that contains a moment, or that ended at most ``slack`` before it."""
        index = bisect_right(self._begins, moment) - 1
        return self.items[index] if index >= 0 and moment <= self.items[index].end + slack else None


def remainder(begin: int, end: int, taken: Sequence[Interval]) -> Iterator[tuple[int, int]]:
    """The parts of a time range that ordered ranges leave free."""
    for item in taken:
        if item.begin > begin:
            yield begin, item.begin
        begin = max(begin, item.end)
    if end > begin:
        yield begin, end
