"""What is free in the allocator's segments, and in how large pieces: what fragmentation is counted from."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from gpumon.core.allocator import BlockState, Segment

SHARED_POOL: Final = (0, 0)


class Holes(NamedTuple):
    """What is used and what is free in some segments, in bytes.

    Attributes:
        size: All of it.
        active: Held by tensors.
        pending: Freed, and still waited for by a stream.
        largest: The largest piece that is free.
        releasable: In shared segments of which nothing is in use: ``empty_cache`` gives it back.
    """

    size: int = 0
    active: int = 0
    pending: int = 0
    largest: int = 0
    releasable: int = 0

    @property
    def free(self) -> int:
        """What is free."""
        return self.size - self.active - self.pending

    @property
    def fragmentation(self) -> float:
        """Share of what is free that lies outside of the largest hole; 0 is one hole, near 1 is dust."""
        return 1 - self.largest / self.free if self.free else 0.0


class Group(NamedTuple):
    """Segments that can serve the same requests: a block is only used again within its pool, its stream and its kind.

    Attributes:
        pool: PyTorch's id of the pool.
        stream: The stream.
        is_large: Whether it is for blocks of more than 1 MiB.
        holes: What is used and free in all of them.
        segments: Those with the most free memory first.
    """

    pool: tuple[int, int]
    stream: int
    is_large: bool
    holes: Holes
    segments: tuple[Segment, ...]


class SegmentLayout:
    """The segments of one device in one process.

    Args:
        segments: As a probe or a snapshot tells them.
        ordinal: The process's number of the device.
    """

    def __init__(self, segments: Iterable[Segment], ordinal: int) -> None:
        self.segments = [each for each in segments if each.ordinal == ordinal]

    @cached_property
    def holes(self) -> Holes:
        """What is used and free in all of them."""
        return summed(holes_of(each) for each in self.segments)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """By pool, the shared one first, then by stream, each with its large blocks before the small ones."""
        members: dict[tuple[tuple[int, int], int, bool], list[Segment]] = {}
        for each in self.segments:
            members.setdefault((each.pool, each.stream, each.is_large), []).append(each)
        ordered = sorted(members.items(), key=lambda item: (item[0][0] != SHARED_POOL, *item[0][:2], not item[0][2]))
        return tuple(_group(*key, found) for key, found in ordered)


def _group(pool: tuple[int, int], stream: int, is_large: bool, segments: Sequence[Segment]) -> Group:
    counted = [(holes_of(each), each) for each in segments]
    counted.sort(key=lambda pair: (-pair[0].free, -pair[0].size, pair[1].address))
    return Group(pool, stream, is_large, summed(holes for holes, _ in counted), tuple(each for _, each in counted))


def holes_of(segment: Segment) -> Holes:
    """What is used and free in one segment; neighbours that are both free are two holes, as for the allocator."""
    by_state = dict.fromkeys(BlockState, 0)
    largest = 0
    for block in segment.blocks:
        by_state[block.state] += block.size_bytes
        if block.state is BlockState.INACTIVE:
            largest = max(largest, block.size_bytes)
    active, pending = by_state[BlockState.ALLOCATED], by_state[BlockState.PENDING_FREE]
    size = max(segment.size_bytes, sum(by_state.values()))
    is_released = not active and not pending and not segment.is_expandable and segment.pool == SHARED_POOL
    return Holes(size, active, pending, largest, size if is_released else 0)


def summed(parts: Iterable[Holes]) -> Holes:
    """Several together; the largest hole is the largest of any."""
    size = active = pending = largest = releasable = 0
    for each in parts:
        size += each.size
        active += each.active
        pending += each.pending
        largest = max(largest, each.largest)
        releasable += each.releasable
    return Holes(size, active, pending, largest, releasable)
