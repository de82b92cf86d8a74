"""What a snapshot has by the million, in columns: events, and the stacks that they share."""

from array import array
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

from gpumon.core.text import safe_text
from gpumon.snapshots.machine import UnreadableError
from gpumon.snapshots.model import Frame

NO_STACK: Final = 0
"""The stack of what was recorded without one."""
EARLIER: Final = 1
"""The stack of what was allocated before the history began."""
_SPECIAL: Final = (Frame("no stack was recorded"), Frame("allocated before the history began"))
_MOST_FRAMES: Final = 1_000
"""The innermost ones of a stack that are kept, as of a program that calls itself."""
_MOST_NAME: Final = 200
_MOST_PATH: Final = 400
_MOST_LINE: Final = 1 << 31
_MOST_NUMBER: Final = 1 << 63


class Action(IntEnum):
    """What happened in an event, as far as it is of use here."""

    OTHER = 0
    ALLOC = 1
    FREE = 2
    """The program has freed it (``free_requested``); a stream may still use it."""
    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    OOM = 5
    FREE_COMPLETED = 6
    """Nothing uses it any more; of use where the history was told to leave out ``free_requested``."""


ACTIONS: Final = {
    "alloc": Action.ALLOC,
    "free_requested": Action.FREE,
    "free": Action.FREE,
    "free_completed": Action.FREE_COMPLETED,
    "segment_alloc": Action.SEGMENT_ALLOC,
    "segment_map": Action.SEGMENT_ALLOC,
    "segment_free": Action.SEGMENT_FREE,
    "segment_unmap": Action.SEGMENT_FREE,
    "oom": Action.OOM,
}


def action_of(value: Any) -> Action:  # noqa: ANN401 - whatever the file holds in its place
    """What happened, by torch's name for it."""
    return ACTIONS.get(value, Action.OTHER) if isinstance(value, str) else Action.OTHER


def whole(value: Any) -> int:  # noqa: ANN401 - whatever the file holds in its place
    """A number of bytes, an address or a time; one that is not there is 0.

    Raises:
        UnreadableError: It cannot be true.
    """
    if value is None:
        return 0
    if not isinstance(value, int) or not 0 <= value < _MOST_NUMBER:
        raise UnreadableError("is damaged: a number in it cannot be true")
    return value


class StackRef:
    """Stands in the place of a list of frames that was taken into the table."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Stacks:
    """Every frame and every stack once, by number; a stack has its innermost frame first."""

    def __init__(self) -> None:
        self.frames: dict[Frame, int] = {}
        self.stacks: dict[tuple[int, ...], int] = {}
        self.refs: list[StackRef] = []
        self._told: dict[Frame, int] = {}
        """Numbers by what the file tells: making texts safe takes long, and each frame comes by the thousand."""
        for frame in _SPECIAL:
            self._stack_of((self._frame_of(frame),))

    def number(self, listed: Any) -> int:  # noqa: ANN401 - whatever the file holds in the frames' place
        """The number of a list of frames."""
        if isinstance(listed, StackRef):
            return listed.number
        if not isinstance(listed, (list, tuple)) or not listed:
            return NO_STACK
        return self._stack_of(tuple(self._number_of(each) for each in listed[:_MOST_FRAMES] if isinstance(each, dict)))

    def _number_of(self, told: dict[str, Any]) -> int:
        name, path, line = told.get("name"), told.get("filename"), told.get("line")
        frame = Frame(
            name if isinstance(name, str) else "",
            path if isinstance(path, str) else "",
            line if isinstance(line, int) and 0 <= line < _MOST_LINE else 0,
        )
        number = self._told.get(frame)
        if number is None:
            safe = Frame(safe_text(frame.name, _MOST_NAME), safe_text(frame.file, _MOST_PATH), frame.line)
            number = self._told[frame] = self._frame_of(safe)
        return number

    def _frame_of(self, frame: Frame) -> int:
        return self.frames.setdefault(frame, len(self.frames))

    def _stack_of(self, frames: tuple[int, ...]) -> int:
        if not frames:
            return NO_STACK
        number = self.stacks.setdefault(frames, len(self.stacks))
        if number == len(self.refs):
            self.refs.append(StackRef(number))
        return number


class Events:
    """The events of one device, oldest first: 29 bytes each."""

    def __init__(self) -> None:
        self.actions = array("B")
        self.addresses = array("Q")
        """Of the block or segment; of an event without one, the bytes that were free on the device."""
        self.sizes = array("Q")
        self.times = array("Q")
        """Microseconds of Unix time."""
        self.stacks = array("I")

    def __len__(self) -> int:
        return len(self.actions)

    def add(self, action: int, address: int, size: int, time: int, stack: int) -> None:
        """Adds one."""
        self.actions.append(action)
        self.addresses.append(address)
        self.sizes.append(size)
        self.times.append(time)
        self.stacks.append(stack)

    def places(self, action: Action) -> Iterator[int]:
        """Where an action is."""
        place = -1
        while True:
            try:
                place = self.actions.index(action, place + 1)
            except ValueError:
                return
            yield place
