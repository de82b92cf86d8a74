"""What every source of frames is, and the inbox through which frames reach their reader.

The producing thread puts frames into a bounded inbox and rings a bell; the reader drains the inbox when it gets to it.
A reader that stalls loses no frame until the inbox is full, and then the oldest.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, runtime_checkable

from gpumon.core.model import Frame
from gpumon.core.problems import Problem

INBOX_SIZE: Final = 1024


class Rewound(Enum):
    """Stands in the inbox where time jumped: what was drawn before no longer belongs to what follows."""

    REWOUND = "rewound"


Arrival = Frame | Rewound
Bell = Callable[[], None]


class Inbox:
    """Frames that have arrived and were not looked at yet; safe between threads."""

    def __init__(self, size: int = INBOX_SIZE) -> None:
        self._arrivals: deque[Arrival] = deque(maxlen=size)
        self._ring: Bell = lambda: None
        self.arrived = threading.Event()
        self.lost = 0

    def on_arrival(self, ring: Bell) -> None:
        """Sets the bell, which is called from the producing thread, and rings it for what is waiting."""
        self._ring = ring
        if self._arrivals:
            ring()

    def put(self, arrival: Arrival) -> None:
        """Adds an arrival and rings."""
        if len(self._arrivals) == self._arrivals.maxlen:
            self.lost += 1
        self._arrivals.append(arrival)
        self.ring()

    def ring(self) -> None:
        """Rings without an arrival: something else about the stream has changed."""
        self.arrived.set()
        self._ring()

    def drain(self) -> list[Arrival]:
        """Takes everything that is waiting, oldest first."""
        self.arrived.clear()
        taken: list[Arrival] = []
        while self._arrivals:
            taken.append(self._arrivals.popleft())
        return taken


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
    inbox: Inbox

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
