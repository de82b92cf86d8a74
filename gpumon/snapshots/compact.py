"""Keeps of millions of stacks those that matter, and of the frames those that they need."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from gpumon.snapshots.model import NOTHING, DeviceMemory, Frame, Snapshot, Use
from gpumon.snapshots.tables import Stacks

MOST_USES: Final = 50_000
MOST_FRAMES: Final = 3_000_000
"""Frames of all the stacks that are kept, of all devices."""
_REST: Final = Frame("all other stacks, each smaller than these")


def compacted(stacks: Stacks, memories: Sequence[DeviceMemory], empty: Snapshot) -> Snapshot:
    """The devices with their stacks numbered anew.

    Args:
        stacks: Every stack.
        memories: What refers to them.
        empty: A snapshot without devices.
    """
    known = list(stacks.stacks)
    rest = len(known)
    known.append((len(stacks.frames),))
    all_frames = (*stacks.frames, _REST)
    room = MOST_FRAMES // max(1, len(memories))
    counts = [_fitting([len(known[use.stack]) for use in memory.uses], room) for memory in memories]
    shortened = [
        replace(memory, uses=_shortened(memory.uses, rest, count))
        for memory, count in zip(memories, counts, strict=True)
    ]
    wanted = dict.fromkeys(number for memory in shortened for number in _stacks_in(memory))
    numbers = {old: new for new, old in enumerate(wanted)}
    needed = dict.fromkeys(frame for stack in numbers for frame in known[stack])
    frames = {old: new for new, old in enumerate(needed)}
    return replace(
        empty,
        frames=tuple(all_frames[frame] for frame in frames),
        stacks=tuple(tuple(frames[frame] for frame in known[stack]) for stack in numbers),
        devices=tuple(_renumbered(memory, numbers) for memory in shortened),
    )


def _fitting(depths: Sequence[int], room: int) -> int:
    """How many stacks are kept, from the first one."""
    return min(MOST_USES, bisect_right(list(accumulate(depths)), room))


def _shortened(uses: Sequence[Use], rest: int, count: int) -> tuple[Use, ...]:
    """The largest ones, and the sum of the others."""
    if len(uses) <= count:
        return tuple(uses)
    others = uses[count:]
    now, peak, ever = (sum(amounts, NOTHING) for amounts in zip(*(use[1:] for use in others), strict=True))
    return (*uses[:count], Use(rest, now, peak, ever))


def _stacks_in(memory: DeviceMemory) -> Iterable[int]:
    yield from (use.stack for use in memory.uses)
    if memory.history is not None:
        yield from (oom.stack for oom in memory.history.ooms)
        yield from (allocation.stack for allocation in memory.history.largest)


def _renumbered(memory: DeviceMemory, numbers: dict[int, int]) -> DeviceMemory:
    uses = tuple(use._replace(stack=numbers[use.stack]) for use in memory.uses)
    history = memory.history
    if history is not None:
        ooms = tuple(oom._replace(stack=numbers[oom.stack]) for oom in history.ooms)
        largest = tuple(each._replace(stack=numbers[each.stack]) for each in history.largest)
        history = replace(history, ooms=ooms, largest=largest)
    return replace(memory, uses=uses, history=history)
