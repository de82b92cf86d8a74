"""The interface of a source of frames, and its optional capabilities."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Protocol, runtime_checkable

from gpumon.core.inbox import INBOX_SIZE, Inbox
from gpumon.core.model import Frame
from gpumon.core.problems import Problem


class Discontinuity(Enum):
    """An item of the inbox that is not a frame."""

    REWOUND = "rewound"
    """Time jumped: history from before it does not belong to what follows."""
    CONTINUED = "continued"
    """The frames before it only fill the history; the one to show follows."""


Arrival = Frame | Discontinuity
DEMO_TITLE: Final = "demo"
"""Title of the stream that plays the bundled recording."""
MAX_WAITING_READINGS: Final = 8_192
"""Devices, each counted as eight processes, and processes of the frames that wait for a screen: some 10 MiB."""
_DEVICE_WEIGHT: Final = 8


class FrameInbox(Inbox[Arrival]):
    """Frames that have arrived and were not processed yet.

    Attributes:
        max_readings: The readings that may wait, or None for as many as there are frames. A screen that cannot draw in
            time needs the newest frame, not all of them; a recording needs all.

    Args:
        size: Maximum number of frames.
    """

    def __init__(self, size: int = INBOX_SIZE) -> None:
        super().__init__(size)
        self.max_readings: int | None = None

    def put(self, *items: Arrival) -> None:
        """Add frames and ring once. Where they are limited, the newest one has the events of those it pushes out."""
        if self.max_readings is None or not items or not isinstance(items[-1], Frame):
            super().put(*items)
            return
        events = tuple(event for frame in self._pushed_out(items) for event in frame.events)
        super().put(*items[:-1], replace(items[-1], events=events + items[-1].events) if events else items[-1])

    def _pushed_out(self, items: Sequence[Arrival]) -> Iterator[Frame]:
        """Remove the oldest frames until others have room."""
        assert self.max_readings is not None
        excess = sum(map(_readings, (*tuple(self._items), *items))) - self.max_readings
        while excess > 0:
            try:
                oldest = self._items.popleft()
            except IndexError:  # none is left, or the reader was faster
                return
            excess -= _readings(oldest)
            if isinstance(oldest, Frame):
                self.lost += 1
                yield oldest


def _readings(arrival: Arrival) -> int:
    """What a frame contains, as `MAX_WAITING_READINGS` counts it."""
    if not isinstance(arrival, Frame):
        return 0
    return sum(_DEVICE_WEIGHT + len(device.processes or ()) for device in arrival.devices)


@dataclass(frozen=True, slots=True)
class Position:
    """Playback position in a recording.

    Attributes:
        seconds: Time since the first frame.
        duration_seconds: Length of the recording, or None while unknown.
        speed: Recorded seconds per second.
        paused: Whether playback is paused.
        ended: Whether the last frame has been shown.
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
        """What is wrong with the source itself, or None."""

    def start(self) -> None:
        """Start producing frames."""

    def close(self) -> None:
        """Stop everything that was started; do not wait for what does not respond."""


class ThreadStream(ABC):
    """A stream whose frames come from a thread.

    Args:
        title: Its name on the screen.
        thread: The name of the thread.

    Attributes:
        title: Its name on the screen.
        inbox: Receives the frames.
    """

    def __init__(self, title: str, thread: str) -> None:
        self.title = title
        self.inbox = FrameInbox()
        self._problem: Problem | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)

    @property
    def problem(self) -> Problem | None:
        """Why there are no frames now, or what could not be read so far; None otherwise."""
        return self._problem

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop; what waits for data, or an answer, is left behind."""
        self._closing.set()

    @abstractmethod
    def _run(self) -> None:
        """Put frames into the inbox until `_closing` is set."""


@runtime_checkable
class Adjustable(Protocol):
    """A stream whose interval can be changed."""

    interval: float

    def set_interval(self, seconds: float) -> None:
        """Request another interval."""


@runtime_checkable
class SupportsOnDemand(Protocol):
    """A stream that reads expensive metrics only of the devices that a screen shows."""

    def request_on_demand(self, keys: Collection[str], process_keys: Collection[str] = ()) -> None:
        """Set the devices, by `Device.key`, whose expensive values are read from now on.

        Args:
            keys: Devices of which everything is read.
            process_keys: Devices of which only the values of the processes are read.
        """


@runtime_checkable
class SupportsCallStats(Protocol):
    """A stream that can report the cost of each driver call, which makes frames longer."""

    def set_call_stats(self, enabled: bool) -> None:
        """Enable or disable the report."""


@runtime_checkable
class Seekable(Protocol):
    """A stream that can be paused and moved in time."""

    @property
    def position(self) -> Position:
        """The playback position."""

    def set_paused(self, paused: bool) -> None:
        """Pause or resume."""

    def set_speed(self, speed: float) -> None:
        """Set the speed in recorded seconds per second."""

    def seek(self, seconds: float) -> None:
        """Move to a time since the first frame."""
