"""The millions of events of a snapshot in columns, and the table of the stacks that they share."""

from array import array
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

from gpumon.core.source_file import UnreadableError
from gpumon.core.text import safe_text
from gpumon.core.text_table import table
from gpumon.snapshots.model import SnapshotFrame

NO_STACK: Final = 0
"""The stack of an allocation that was recorded without one."""
EARLIER: Final = 1
"""The stack of everything allocated before the first event."""
_MAX_FRAMES: Final = 1_000
"""Number of innermost frames kept of a stack, which is deeper only in a recursive program."""
_MAX_NAME: Final = 200
_MAX_PATH: Final = 400
_MAX_LINE: Final = 1 << 31
_MAX_NUMBER: Final = 1 << 63


class Action(IntEnum):
    """The kinds of trace events that gpumon uses."""

    OTHER = 0
    ALLOC = 1
    FREE = 2
    """``free_requested``: the program has freed the block; a stream may still use it."""
    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    OOM = 5
    FREE_COMPLETED = 6
    """The block is unused. Needed where the history was recorded without ``free_requested``."""


ACTIONS: Final = {name: Action[action] for name, action in map(str.split, table("gpumon.snapshots", "actions"))}


def action_of(value: Any) -> Action:  # noqa: ANN401 - anything may be in the file
    """The kind of an event, from PyTorch's name for it."""
    return ACTIONS.get(value, Action.OTHER) if isinstance(value, str) else Action.OTHER


def whole(value: Any) -> int:  # noqa: ANN401 - anything may be in the file
    """A size, an address or a time as an integer; 0 for None.

    Raises:
        UnreadableError: The value is out of range.
    """
    if value is None:
        return 0
    if not isinstance(value, int) or not 0 <= value < _MAX_NUMBER:
        raise UnreadableError("is damaged: it contains a number that is out of range")
    return value


class StackRef:
    """Replaces a list of frames that was added to the table."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class StackTable:
    """Every distinct frame and stack, with its number. A stack lists its innermost frame first."""

    def __init__(self) -> None:
        self.frames: dict[SnapshotFrame, int] = {}
        self.stacks: dict[tuple[int, ...], int] = {}
        self.refs: list[StackRef] = []
        self._raw_frames: dict[SnapshotFrame, int] = {}
        """Numbers by the frame as the file has it: `safe_text` is slow, and each frame occurs thousands of times."""
        for frame in (SnapshotFrame("no stack was recorded"), SnapshotFrame("allocated before the history began")):
            self._stack_of((self._frame_of(frame),))

    def number(self, listed: Any) -> int:  # noqa: ANN401 - anything may be in the file
        """The number of a list of frames."""
        if isinstance(listed, StackRef):
            return listed.number
        if not isinstance(listed, (list, tuple)) or not listed:
            return NO_STACK
        return self._stack_of(tuple(self._number_of(raw) for raw in listed[:_MAX_FRAMES] if isinstance(raw, dict)))

    def _number_of(self, raw: dict[str, Any]) -> int:
        name, path, line = raw.get("name"), raw.get("filename"), raw.get("line")
        frame = SnapshotFrame(
            name if isinstance(name, str) else "",
            path if isinstance(path, str) else "",
            line if isinstance(line, int) and 0 <= line < _MAX_LINE else 0,
        )
        number = self._raw_frames.get(frame)
        if number is None:
            safe = SnapshotFrame(safe_text(frame.name, _MAX_NAME), safe_text(frame.file, _MAX_PATH), frame.line)
            number = self._raw_frames[frame] = self._frame_of(safe)
        return number

    def _frame_of(self, frame: SnapshotFrame) -> int:
        return self.frames.setdefault(frame, len(self.frames))

    def _stack_of(self, frames: tuple[int, ...]) -> int:
        if not frames:
            return NO_STACK
        number = self.stacks.setdefault(frames, len(self.stacks))
        if number == len(self.refs):
            self.refs.append(StackRef(number))
        return number


class TraceEvents:
    """The events of one device, oldest first: 29 bytes each."""

    def __init__(self) -> None:
        self.actions = array("B")
        self.addresses = array("Q")
        """Of the block or segment; for an OOM event, the free bytes of the device."""
        self.sizes = array("Q")
        self.times = array("Q")
        """Microseconds of Unix time."""
        self.stacks = array("I")

    def __len__(self) -> int:
        return len(self.actions)

    def add(self, action: int, address: int, size: int, time: int, stack: int) -> None:
        """Append an event."""
        self.actions.append(action)
        self.addresses.append(address)
        self.sizes.append(size)
        self.times.append(time)
        self.stacks.append(stack)

    def indexes(self, action: Action) -> Iterator[int]:
        """The indexes of the events of a kind."""
        index = -1
        while True:
            try:
                index = self.actions.index(action, index + 1)
            except ValueError:
                return
            yield index
