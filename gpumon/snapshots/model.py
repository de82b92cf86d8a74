"""What is kept of a snapshot, on both sides of the pipe: small, whatever the size of the file."""

from dataclasses import dataclass, field
from typing import NamedTuple

from gpumon.core.allocator import Segment
from gpumon.core.timeline import Summary


class Frame(NamedTuple):
    """A line of a program that was on its way to an allocation; without a file it says why there is none."""

    name: str
    file: str = ""
    line: int = 0


class Amount(NamedTuple):
    """Bytes, and in how many blocks."""

    bytes: int = 0
    blocks: int = 0

    def __add__(self, other: object) -> "Amount":
        if not isinstance(other, Amount):
            return NotImplemented
        return Amount(self.bytes + other.bytes, self.blocks + other.blocks)


NOTHING = Amount()


class Use(NamedTuple):
    """What one stack allocated.

    Attributes:
        stack: Its number.
        now: What of it is allocated in the end.
        peak: What of it was allocated at the peak.
        ever: All that the history tells.
    """

    stack: int
    now: Amount = NOTHING
    peak: Amount = NOTHING
    ever: Amount = NOTHING


class OutOfMemory(NamedTuple):
    """An allocation that failed.

    Attributes:
        seconds: Since the history began.
        event: Its number in the history.
        bytes: What was asked for.
        free_bytes: What was free on the device.
        stack: Who asked.
    """

    seconds: float
    event: int
    bytes: int
    free_bytes: int
    stack: int


class Allocation(NamedTuple):
    """One allocation of the history.

    Attributes:
        seconds: When, since the history began.
        end_seconds: When it was freed, or None.
        bytes: What was asked for.
        stack: Who asked.
    """

    seconds: float
    end_seconds: float | None
    bytes: int
    stack: int


class Course(NamedTuple):
    """How much there was in equal stretches: the lowest, how much there was at its end, and the highest.

    Attributes:
        allocated: Of what was allocated.
        reserved: Of what the driver had given.
    """

    allocated: tuple[Summary, ...]
    reserved: tuple[Summary, ...]


@dataclass(frozen=True, slots=True)
class History:
    """The trace of one device. Its sizes are what was asked for, before the allocator rounds them.

    Attributes:
        events: How many there are.
        begin_seconds: Unix time of the first; 0 where this PyTorch keeps no times, and an event counts as a second.
        duration_seconds: Time to the last.
        by_time: The course in equal stretches of time.
        by_event: The course in stretches of as many events each: a pause takes no room.
        peak: What was allocated at the peak, and in how many blocks.
        peak_seconds: When, since the beginning.
        peak_event: At which event.
        peak_reserved_bytes: What was reserved then.
        earlier_bytes: What was allocated before the first event.
        ooms: Allocations that failed, oldest first.
        largest: The largest allocations, by time; none unless they were asked for.
    """

    events: int
    begin_seconds: float
    duration_seconds: float
    by_time: Course
    by_event: Course
    peak: Amount
    peak_seconds: float
    peak_event: int
    peak_reserved_bytes: int
    earlier_bytes: int
    ooms: tuple[OutOfMemory, ...] = ()
    largest: tuple[Allocation, ...] = ()

    @property
    def has_times(self) -> bool:
        """Whether its seconds are seconds, and not events."""
        return self.begin_seconds > 0


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """One device in a snapshot.

    Attributes:
        ordinal: The process's own number of it.
        segments: What the allocator holds of the driver.
        uses: What each stack allocated.
        history: What happened, or None where nothing was recorded.
        notes: What one has to know about these figures, a sentence each.
    """

    ordinal: int
    segments: tuple[Segment, ...]
    uses: tuple[Use, ...] = ()
    history: History | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A file that was read.

    Attributes:
        name: Its name.
        size_bytes: Its size.
        frames: Frames, by number.
        stacks: Frame numbers of each stack, innermost first, by number of the stack.
        devices: The devices that have something, by ordinal.
        settings: The allocator's settings, as texts.
        notes: What one has to know about the file, a sentence each.
    """

    name: str
    size_bytes: int
    frames: tuple[Frame, ...]
    stacks: tuple[tuple[int, ...], ...]
    devices: tuple[DeviceMemory, ...]
    settings: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def frames_of(self, stack: int) -> tuple[Frame, ...]:
        """The frames of a stack, innermost first."""
        return tuple(self.frames[number] for number in self.stacks[stack])
