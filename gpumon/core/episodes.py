"""What happened to a device over time: stretches in which a reason held, and moments at which something changed."""

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

_MOST_EPISODES: Final = 512
_MOST_REASONS: Final = 32
_MOST_EVENTS: Final = 512


class Episode(NamedTuple):
    """A stretch of time, from the first moment to the last one at which something was seen to hold."""

    begin_seconds: float
    end_seconds: float


class EventKind(Enum):
    """What an event is about."""

    WORKLOAD = "workload"
    DEVICE = "device"
    DRIVER = "driver"
    XID = "xid"


class Event(NamedTuple):
    """Something happened at a moment (monotonic seconds)."""

    seconds: float
    kind: EventKind
    text: str


class Episodes:
    """Since when and until when reasons held. Two sightings belong together if nothing was missed between them."""

    __slots__ = ("_held", "_last")

    def __init__(self) -> None:
        self._held: dict[str, deque[Episode]] = {}
        self._last: float | None = None

    def __iter__(self) -> Iterator[str]:
        """The reasons that are remembered, in the order in which they were first seen."""
        return iter(self._held)

    def add(self, seconds: float, reasons: Iterable[str] | None, patience_seconds: float) -> None:
        """Adds what holds at a moment.

        Args:
            seconds: The moment.
            reasons: What holds; None if that is not known, which ends everything that held.
            patience_seconds: A longer silence since the moment before ends everything, too.
        """
        if reasons is None:
            self._last = None
            return
        before, self._last = self._last, seconds
        goes_on = before is not None and 0 <= seconds - before <= patience_seconds
        for reason in reasons:
            episodes = self._held.get(reason)
            if episodes is None:
                if len(self._held) >= _MOST_REASONS:
                    continue
                episodes = self._held[reason] = deque(maxlen=_MOST_EPISODES)
            if goes_on and episodes and episodes[-1].end_seconds == before:
                episodes[-1] = Episode(episodes[-1].begin_seconds, seconds)
            else:
                episodes.append(Episode(seconds, seconds))

    def of(self, reason: str) -> Iterable[Episode]:
        """When a reason held, oldest first."""
        return self._held.get(reason, ())

    def forget(self, before_seconds: float) -> None:
        """Forgets what ended before a moment."""
        for reason in list(self._held):
            episodes = self._held[reason]
            while episodes and episodes[0].end_seconds < before_seconds:
                episodes.popleft()
            if not episodes:
                del self._held[reason]

    def held_seconds(self, reason: str, first_seconds: float, last_seconds: float) -> float:
        """How long a reason held between two moments."""
        return sum(
            max(0.0, min(each.end_seconds, last_seconds) - max(each.begin_seconds, first_seconds))
            for each in self.of(reason)
        )


def event_log() -> "deque[Event]":
    """An empty list of events that keeps the newest."""
    return deque(maxlen=_MOST_EVENTS)
