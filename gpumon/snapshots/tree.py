"""Amounts by frame, as a tree that is made as far as somebody looks into it."""

from collections.abc import Iterable, Sequence
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from gpumon.snapshots.model import NOTHING, Amount, DeviceMemory, Frame, Snapshot, Use


class Measure(str, Enum):
    """Which amount of a stack is meant. Public names."""

    NOW = "now"
    PEAK = "peak"
    EVER = "ever"

    def of(self, use: Use) -> Amount:
        """The amount."""
        return {Measure.NOW: use.now, Measure.PEAK: use.peak, Measure.EVER: use.ever}[self]


class Share(NamedTuple):
    """What one stack has.

    Attributes:
        frames: The stack, in the order in which the tree descends.
        amount: What it has.
        before: What it had in another snapshot; nothing if there is none.
    """

    frames: tuple[Frame, ...]
    amount: Amount
    before: Amount = NOTHING

    @property
    def weight(self) -> int:
        """What it is sorted by: bytes, or by how many they have changed."""
        return abs(self.amount.bytes - self.before.bytes)


class Node:
    """A frame, and all that was allocated by way of it.

    Args:
        frame: The frame.
        shares: The stacks that go through it.
        depth: How many frames stand above it.
        key: Which one of all nodes it is.
    """

    def __init__(self, frame: Frame, shares: Sequence[Share], depth: int, key: str) -> None:
        self.frame = frame
        self.key = key
        self.amount = sum((share.amount for share in shares), NOTHING)
        self.before = sum((share.before for share in shares), NOTHING)
        self.depth = depth
        self._shares = shares

    @property
    def weight(self) -> int:
        """What it is sorted by."""
        return abs(self.amount.bytes - self.before.bytes)

    @cached_property
    def children(self) -> tuple["Node", ...]:
        """The frames under it, the largest first."""
        return nodes(self._shares, self.depth + 1, self.key)

    @property
    def has_children(self) -> bool:
        """Whether there are frames under it."""
        return any(len(share.frames) > self.depth + 1 for share in self._shares)


def nodes(shares: Iterable[Share], depth: int = 0, parent: str = "") -> tuple[Node, ...]:
    """The frames at a depth, the largest first; without a change there is nothing to show of a difference."""
    groups: dict[Frame, list[Share]] = {}
    for share in shares:
        if depth < len(share.frames):
            groups.setdefault(share.frames[depth], []).append(share)
    found = [
        Node(frame, members, depth, f"{parent}/{number}") for number, (frame, members) in enumerate(groups.items())
    ]
    found.sort(key=lambda node: (-node.weight, -node.amount.bytes, node.frame))
    return tuple(found)


def shares(
    snapshot: Snapshot, device: DeviceMemory, measure: Measure, *, innermost_first: bool, wanted: str = ""
) -> list[Share]:
    """What each stack has.

    Args:
        snapshot: The file.
        device: One of its devices.
        measure: Which amount.
        innermost_first: Whether the tree begins with the frame that allocated, or with where the program began.
        wanted: Only stacks that have this text, in whatever case, in a frame.
    """
    found = []
    for use in device.uses:
        amount = measure.of(use)
        frames = snapshot.frames_of(use.stack)
        if amount.blocks and is_in(frames, wanted):
            found.append(Share(frames if innermost_first else frames[::-1], amount))
    return found


def is_in(frames: Iterable[Frame], wanted: str) -> bool:
    """Whether a text is in one of the frames."""
    text = wanted.casefold()
    return not text or any(text in f"{frame.name} {frame.file}:{frame.line}".casefold() for frame in frames)
