"""What happened to a device over time: time ranges in which a reason held, and events."""

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

_MAX_EPISODES: Final = 512
_MAX_REASONS: Final = 32
_MAX_EVENTS: Final = 512


class Episode(NamedTuple):
    """A time range, from the first to the last moment at which a reason was observed to hold."""

    begin_seconds: float
    end_seconds: float


class HistoryEventKind(Enum):
    """What an event is about."""

    WORKLOAD = "workload"
    DEVICE = "device"
    DRIVER = "driver"
    XID = "xid"


class HistoryEvent(NamedTuple):
    """Something that happened at a moment (monotonic seconds)."""

    seconds: float
    kind: HistoryEventKind
    text: str


class Episodes:
    """The time ranges in which reasons held. Two observations belong together if none was missed between them."""

    __slots__ = ("_episodes", "_last")

    def __init__(self) -> None:
        self._episodes: dict[str, deque[Episode]] = {}
        self._last: float | None = None

    def __iter__(self) -> Iterator[str]:
        """The reasons that are kept, in the order of their first observation."""
        return iter(self._episodes)

    def add(self, seconds: float, reasons: Iterable[str] | None, patience_seconds: float) -> None:
        """Add the reasons that hold at a moment.

        Args:
            seconds: The moment.
            reasons: The reasons; None if unknown, which ends every episode.
            patience_seconds: A longer time since the previous call also ends every episode.
        """
        if reasons is None:
            self._last = None
            return
        before, self._last = self._last, seconds
        continues = before is not None and 0 <= seconds - before <= patience_seconds
        for reason in reasons:
            episodes = self._episodes.get(reason)
            if episodes is None:
                if len(self._episodes) >= _MAX_REASONS:
                    continue
                episodes = self._episodes[reason] = deque(maxlen=_MAX_EPISODES)
            if continues and episodes and episodes[-1].end_seconds == before:
                episodes[-1] = Episode(episodes[-1].begin_seconds, seconds)
            else:
                episodes.append(Episode(seconds, seconds))

    def of(self, reason: str) -> Iterable[Episode]:
        """The episodes of a reason, oldest first."""
        return self._episodes.get(reason, ())

    def forget(self, before_seconds: float) -> None:
        """Discard the episodes that ended before a moment."""
        for reason in list(self._episodes):
            episodes = self._episodes[reason]
            while episodes and episodes[0].end_seconds < before_seconds:
                episodes.popleft()
            if not episodes:
                del self._episodes[reason]

    def held_seconds(self, reason: str, first_seconds: float, last_seconds: float) -> float:
        """How long a reason held between two moments, in seconds."""
        return sum(
            max(0.0, min(episode.end_seconds, last_seconds) - max(episode.begin_seconds, first_seconds))
            for episode in self.of(reason)
        )


def event_log() -> "deque[HistoryEvent]":
    """An empty list of events that keeps the newest ones."""
    return deque(maxlen=_MAX_EVENTS)
