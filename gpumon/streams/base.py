"""What every source of frames is."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

from gpumon.core.inbox import Inbox
from gpumon.core.model import Frame
from gpumon.core.problems import Problem


class Rewound(Enum):
    """Stands in the inbox where time jumped: what was drawn before no longer belongs to what follows."""

    REWOUND = "rewound"


Arrival = Frame | Rewound
FrameInbox = Inbox[Arrival]
"""Frames that have arrived and were not looked at yet."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a recording stands.

    Attributes:
        seconds: Time since its first frame.
        duration_seconds: Length of the recording, or None while it is not known.
        speed: Recorded seconds per second.
        paused: Whether it stands still.
        ended: Whether its last frame has been shown.
    """

    seconds: float
    duration_seconds: float | None
    speed: float
    paused: bool
    ended: bool


class Stream(Protocol):
    """A source of frames."""

    title: str
    inbox: FrameInbox

    @property
    def problem(self) -> Problem | None:
        """What is wrong with the source itself, if anything."""

    def start(self) -> None:
        """Begins to produce."""

    def close(self) -> None:
        """Ends everything that was started; does not wait for what does not answer."""


@runtime_checkable
class Adjustable(Protocol):
    """A stream whose interval can be set."""

    interval: float

    def set_interval(self, seconds: float) -> None:
        """Asks for another interval."""


@runtime_checkable
class Lookable(Protocol):
    """A stream that reads some figures only of devices that somebody looks at, because they are costly to read."""

    def look(self, keys: Collection[str]) -> None:
        """Says whose figures are wanted from now on, by `Device.key`; an empty collection ends it."""


@runtime_checkable
class Countable(Protocol):
    """A stream that tells what each driver call costs while somebody looks at it; it makes frames longer."""

    def count_calls(self, wanted: bool) -> None:
        """Says whether it is wanted from now on."""


@runtime_checkable
class Seekable(Protocol):
    """A stream that can be stopped and moved in time."""

    @property
    def position(self) -> Position:
        """Where it stands."""

    def set_paused(self, paused: bool) -> None:
        """Stops or goes on."""

    def set_speed(self, speed: float) -> None:
        """Sets recorded seconds per second."""

    def seek(self, seconds: float) -> None:
        """Moves to a time since the first frame."""
