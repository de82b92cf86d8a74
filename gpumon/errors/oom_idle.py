"""Idle memory in the allocator when an allocation failed, and why the request could not use it.

PyTorch serves a request from one free block of the same stream, the same pool, and the same kind (small or large). The
failure therefore proves that no such block was large enough: if a free block is large enough for the request, the
request came on another stream. PyTorch frees completely idle segments before an allocation fails, except while a CUDA
graph is captured.
"""

from collections import defaultdict
from typing import Final, NamedTuple

from gpumon.core.allocator import BlockState, Segment
from gpumon.core.oom_file import OomFile

_SHARED_POOL: Final = (0, 0)
_SMALL_SEGMENT_BYTES: Final = 2 << 20
"""What the allocator requests from the driver for up to 1 MiB; for more than that it requests 10 MiB or more."""


class IdleMemory(NamedTuple):
    """Reserved memory that is in no tensor, in bytes.

    Attributes:
        scattered: In free blocks that are too small for the request, on the stream with the most of them.
        pieces: The number of these blocks; None if only the allocator's statistics are known.
        largest: The largest of them.
        other_streams: In free blocks on other streams.
        private: In private pools, such as those of CUDA graphs.
        other_kind: In segments for small blocks if the request is large, or for large blocks if it is small.
        private_reserved: Everything that the private pools hold, idle or not.
        releasable: In completely idle segments, which `empty_cache` frees.
    """

    scattered: int = 0
    pieces: int | None = None
    largest: int | None = None
    other_streams: int = 0
    private: int = 0
    other_kind: int = 0
    private_reserved: int | None = None
    releasable: int | None = None

    @property
    def elsewhere(self) -> int:
        """Idle memory that this request may not use."""
        return self.other_streams + self.private + self.other_kind + self.not_given_back

    @property
    def not_given_back(self) -> int:
        """In completely idle segments that were not freed."""
        return 0 if self.pieces is None else self.releasable or 0


def idle_memory(file: OomFile) -> IdleMemory:
    """The idle memory, from the segments, or from the statistics if the file does not have all segments."""
    if file.is_async:
        return IdleMemory()
    return _by_statistics(file) if file.is_cut or not file.segments else _by_segments(file)


def _by_segments(file: OomFile) -> IdleMemory:
    is_large = file.asked_bytes > _SMALL_SEGMENT_BYTES
    streams: dict[int, list[int]] = defaultdict(list)
    private = other_kind = private_reserved = releasable = 0
    for segment in file.segments:
        holes = _holes(segment)
        if segment.pool != _SHARED_POOL:
            private += sum(holes)
            private_reserved += segment.size_bytes
            continue
        if sum(holes) == segment.size_bytes:
            releasable += segment.size_bytes
        elif segment.is_large is is_large:
            streams[segment.stream] += holes
        else:
            other_kind += sum(holes)
    tight = [holes for holes in streams.values() if max(holes, default=0) < file.asked_bytes]
    own = max(tight, key=sum, default=[])
    return IdleMemory(
        scattered=sum(own),
        pieces=len(own),
        largest=max(own, default=0),
        other_streams=sum(map(sum, streams.values())) - sum(own),
        private=private,
        other_kind=other_kind,
        private_reserved=private_reserved,
        releasable=releasable,
    )


def _holes(segment: Segment) -> list[int]:
    return [block.size_bytes for block in segment.blocks if block.state is BlockState.INACTIVE]


def _by_statistics(file: OomFile) -> IdleMemory:
    statistics = file.statistics
    if statistics is None:
        return IdleMemory()
    used = statistics.allocated_bytes if statistics.active_bytes is None else statistics.active_bytes
    scattered = statistics.inactive_split_bytes
    if scattered is None:
        scattered = max(0, statistics.reserved_bytes - used)
    return IdleMemory(scattered, releasable=statistics.releasable_bytes)
