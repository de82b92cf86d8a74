"""The interface of a source of frames, and its optional capabilities."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

from gpumon.core.inbox import Inbox
from gpumon.core.model import Frame
from gpumon.core.problems import Problem


class Discontinuity(Enum):
    """An item of the inbox where time jumped: history from before it does not belong to what follows."""

    REWOUND = "rewound"


Arrival = Frame | Discontinuity
FrameInbox = Inbox[Arrival]
"""Frames that have arrived and were not processed yet."""


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
