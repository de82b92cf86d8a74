"""What lay idle in the allocator when an allocation failed, and why the request could not have it.

PyTorch serves a request from free blocks of its own stream, of its own pool and of its own kind, small or large, and
from one block as a whole. That it failed therefore proves that no such block was large enough: where a hole would have
held the request, the request came on another stream. Segments that are idle as a whole it gives back before it fails,
but not while a CUDA graph is captured.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from gpumon.core.allocator import BlockState, Segment
from gpumon.diagnosis.oom_file import OomFile

_SHARED_POOL: Final = (0, 0)
_SMALL_SEGMENT_BYTES: Final = 2 << 20
"""What the allocator wants of the driver for a request of up to 1 MiB; for a larger one it wants 10 MiB or more."""


@dataclass(frozen=True, slots=True)
class IdleMemory:
    """What is reserved and in no tensor, in bytes.

    Attributes:
        scattered: In pieces that were all too small, on the stream that has most of them.
        pieces: How many these are; None where only the allocator's sums are known.
        largest: The largest of them.
        other_streams: On other streams than that.
        private: In the pools of CUDA graphs and in the program's own ones.
        other_kind: In segments for small blocks where a large one was asked for, or the other way round.
        private_reserved: All that those pools hold, whether idle or not.
        releasable: In segments that are idle as a whole, which `empty_cache` gives back.
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
        """Where this request may not take it."""
        return self.other_streams + self.private + self.other_kind + self.not_given_back

    @property
    def not_given_back(self) -> int:
        """In segments that were idle as a whole and are still there."""
        return 0 if self.pieces is None else self.releasable or 0


def idle_memory(file: OomFile) -> IdleMemory:
    """What lay idle: by the segments, or by the allocator's sums where not all of the segments are there."""
    return IdleMemory() if file.is_async else _by_sums(file) if file.is_cut or not file.segments else _by_segments(file)


def _by_segments(file: OomFile) -> IdleMemory:
    wants_large = file.asked_bytes > _SMALL_SEGMENT_BYTES
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
        elif segment.is_large is wants_large:
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


def _by_sums(file: OomFile) -> IdleMemory:
    kept = file.statistics
    if kept is None:
        return IdleMemory()
    used = kept.allocated_bytes if kept.active_bytes is None else kept.active_bytes
    scattered = max(0, kept.reserved_bytes - used) if kept.inactive_split_bytes is None else kept.inactive_split_bytes
    return IdleMemory(scattered, private_reserved=kept.private_pools_bytes, releasable=kept.releasable_bytes)
