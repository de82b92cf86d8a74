"""Free memory in the allocator's segments and the sizes of its holes, from which fragmentation is computed."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from gpumon.core.allocator import BlockState, Segment
from gpumon.core.groups import grouped

SHARED_POOL: Final = (0, 0)


class Holes(NamedTuple):
    """Used and free memory of segments, in bytes.

    Attributes:
        size: Total size.
        active: Held by tensors.
        pending: Freed and waiting for a stream.
        largest: The largest hole, that is, the largest free block.
        releasable: In shared segments without a used block: ``empty_cache`` returns these to the driver.
    """

    size: int = 0
    active: int = 0
    pending: int = 0
    largest: int = 0
    releasable: int = 0

    @property
    def free(self) -> int:
        """Free memory."""
        return self.size - self.active - self.pending

    @property
    def fragmentation(self) -> float:
        """Share of the free memory outside the largest hole: 0 is a single hole, near 1 is many small holes."""
        return 1 - self.largest / self.free if self.free else 0.0


class SegmentGroup(NamedTuple):
    """Segments that serve the same requests: a block is reused only within its pool, stream and size class.

    Attributes:
        pool: PyTorch's pool id.
        stream: The stream.
        is_large: Whether the segments hold blocks of more than 1 MiB.
        holes: Used and free memory of all segments.
        segments: The segments, those with the most free memory first.
    """

    pool: tuple[int, int]
    stream: int
    is_large: bool
    holes: Holes
    segments: tuple[Segment, ...]


class SegmentLayout:
    """The segments of one device in one process.

    Args:
        segments: Segments from a probe or a snapshot.
        ordinal: Device number inside the process.
    """

    def __init__(self, segments: Iterable[Segment], ordinal: int) -> None:
        self.segments = [segment for segment in segments if segment.ordinal == ordinal]

    @cached_property
    def holes(self) -> Holes:
        """Used and free memory of all segments."""
        return summed(holes_of(segment) for segment in self.segments)

    @cached_property
    def groups(self) -> tuple[SegmentGroup, ...]:
        """By pool with the shared pool first, then by stream, large blocks before small ones."""
        members = grouped(((segment.pool, segment.stream, segment.is_large), segment) for segment in self.segments)
        ordered = sorted(members.items(), key=lambda item: (item[0][0] != SHARED_POOL, *item[0][:2], not item[0][2]))
        return tuple(_group(*key, segments) for key, segments in ordered)


def _group(pool: tuple[int, int], stream: int, is_large: bool, segments: Sequence[Segment]) -> SegmentGroup:
    measured = [(holes_of(segment), segment) for segment in segments]
    measured.sort(key=lambda pair: (-pair[0].free, -pair[0].size, pair[1].address))
    total = summed(holes for holes, _ in measured)
    return SegmentGroup(pool, stream, is_large, total, tuple(segment for _, segment in measured))


def holes_of(segment: Segment) -> Holes:
    """Used and free memory of a segment; adjacent free blocks count as two holes, as in the allocator."""
    by_state = dict.fromkeys(BlockState, 0)
    largest = 0
    for block in segment.blocks:
        by_state[block.state] += block.size_bytes
        if block.state is BlockState.INACTIVE:
            largest = max(largest, block.size_bytes)
    active, pending = by_state[BlockState.ALLOCATED], by_state[BlockState.PENDING_FREE]
    size = max(segment.size_bytes, sum(by_state.values()))
    is_releasable = not active and not pending and not segment.is_expandable and segment.pool == SHARED_POOL
    return Holes(size, active, pending, largest, size if is_releasable else 0)


def summed(parts: Iterable[Holes]) -> Holes:
    """Add up holes; the largest hole is the largest of any part."""
    size = active = pending = largest = releasable = 0
    for holes in parts:
        size += holes.size
        active += holes.active
        pending += holes.pending
        largest = max(largest, holes.largest)
        releasable += holes.releasable
    return Holes(size, active, pending, largest, releasable)
