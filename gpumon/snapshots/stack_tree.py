"""Allocated amounts by stack and by frame: of one snapshot, or the changes between two.

The tree of frames is computed only as far as it is opened.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from gpumon.core.groups import grouped
from gpumon.snapshots.model import NO_AMOUNT, Amount, DeviceMemory, Snapshot, SnapshotFrame, StackUse


class Measure(str, Enum):
    """Selects an amount of a stack. The values are public names."""

    NOW = "now"
    PEAK = "peak"
    EVER = "ever"

    def of(self, use: StackUse) -> Amount:
        """The amount of a stack."""
        return {Measure.NOW: use.now, Measure.PEAK: use.peak, Measure.EVER: use.ever}[self]


class StackShare(NamedTuple):
    """The amount of one stack.

    Attributes:
        frames: The stack, in the order in which the tree descends.
        amount: Its amount.
        before: Its amount in the snapshot that this one is compared with; nothing if there is none.
    """

    frames: tuple[SnapshotFrame, ...]
    amount: Amount
    before: Amount = NO_AMOUNT

    @property
    def weight(self) -> int:
        """The sort key: bytes, or by how many bytes they have changed."""
        return abs(self.amount.bytes - self.before.bytes)


class StackNode:
    """A frame, and everything that was allocated through it."""

    def __init__(self, frame: SnapshotFrame, shares: Sequence[StackShare], depth: int, key: str) -> None:
        self.frame = frame
        self.key = key
        self.amount = sum((share.amount for share in shares), NO_AMOUNT)
        self.before = sum((share.before for share in shares), NO_AMOUNT)
        self.depth = depth
        self._shares = shares

    @property
    def weight(self) -> int:
        """The sort key: bytes, or by how many bytes they have changed."""
        return abs(self.amount.bytes - self.before.bytes)

    @cached_property
    def children(self) -> tuple["StackNode", ...]:
        """The frames below this one, largest first."""
        return child_nodes(self._shares, self.depth + 1, self.key)

    @property
    def has_children(self) -> bool:
        """Whether there are frames below this one."""
        return any(len(share.frames) > self.depth + 1 for share in self._shares)


def child_nodes(shares: Iterable[StackShare], depth: int = 0, parent: str = "") -> tuple[StackNode, ...]:
    """The frames at a depth, largest first."""
    groups = grouped((share.frames[depth], share) for share in shares if depth < len(share.frames))
    nodes = [
        StackNode(frame, members, depth, f"{parent}/{number}") for number, (frame, members) in enumerate(groups.items())
    ]
    nodes.sort(key=lambda node: (-node.weight, -node.amount.bytes, node.frame))
    return tuple(nodes)


def stack_amounts(
    snapshot: Snapshot, device: DeviceMemory, measure: Measure, *, innermost_first: bool, pattern: str = ""
) -> list[StackShare]:
    """The amount of every stack that has one.

    The tree starts with the frame that allocates, or with the start of the program. Only stacks with the text of
    ``pattern`` in a frame count, whatever its case.
    """
    shares = []
    for use in device.uses:
        amount = measure.of(use)
        frames = snapshot.frames_of(use.stack)
        if amount.blocks and contains_text(frames, pattern):
            shares.append(StackShare(frames if innermost_first else frames[::-1], amount))
    return shares


def stack_changes(
    before: tuple[Snapshot, DeviceMemory | None],
    after: tuple[Snapshot, DeviceMemory],
    measure: Measure,
    *,
    innermost_first: bool,
    pattern: str = "",
) -> list[StackShare]:
    """The stacks whose amount differs between two snapshots. They are matched by frames: numbers differ between files.

    The other arguments are those of `stack_amounts`; the first snapshot may not have the device.
    """
    first, second = _amounts_by_frames(*before, measure), _amounts_by_frames(*after, measure)
    shares = []
    for frames in dict.fromkeys((*second, *first)):
        amount, previous = second.get(frames, NO_AMOUNT), first.get(frames, NO_AMOUNT)
        if amount != previous and contains_text(frames, pattern):
            shares.append(StackShare(frames if innermost_first else frames[::-1], amount, previous))
    return shares


def _amounts_by_frames(
    snapshot: Snapshot, device: DeviceMemory | None, measure: Measure
) -> dict[tuple[SnapshotFrame, ...], Amount]:
    amounts: dict[tuple[SnapshotFrame, ...], Amount] = {}
    for use in () if device is None else device.uses:
        amount = measure.of(use)
        if amount.blocks:
            frames = snapshot.frames_of(use.stack)
            amounts[frames] = amounts.get(frames, NO_AMOUNT) + amount
    return amounts


def contains_text(frames: Iterable[SnapshotFrame], pattern: str) -> bool:
    """Whether a text occurs in one of the frames, ignoring case."""
    text = pattern.casefold()
    return not text or any(text in f"{frame.name} {frame.file}:{frame.line}".casefold() for frame in frames)
