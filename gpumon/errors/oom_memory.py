"""The allocator when a process ran out of memory: its idle memory, and how its memory grew in the minute before.

PyTorch serves a request from one free block of the same stream, the same pool, and the same kind (small or large). The
failure therefore proves that no such block was large enough: if a free block is large enough for the request, the
request came on another stream. PyTorch frees completely idle segments before an allocation fails, except while a CUDA
graph is captured.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final, NamedTuple

from gpumon.core.allocator import BlockState
from gpumon.core.oom_file import OomFile, OomSample

_SHARED_POOL: Final = (0, 0)
_SMALL_SEGMENT_BYTES: Final = 2 << 20
"""What the allocator requests from the driver for up to 1 MiB; for more than that it requests 10 MiB or more."""
_MIN_SECONDS: Final = 10.0
_PARTS: Final = 4
_MIN_RISE_BYTES: Final = 16 << 20
_MIN_RISE_SHARE: Final = 0.1
"""Share of what a part allocates and frees, because samples miss the exact lowest point of a step."""
_MAX_PART_SHARE: Final = 0.6
"""If one part has more than this share of the rise, a new phase of the program began, and nothing leaks."""
_STEP_SECONDS: Final = 2.0
"""Samples that are younger than this belong to the step that failed."""
_END_SHARE: Final = 1 / 8
"""Share of the history that counts as its end, which is at least `_STEP_SECONDS` long."""
_MIN_END_RATE_SHARE: Final = 0.5
"""Growth continues to the end if it has at least this share of its average rate there."""
_MAX_FALL_SHARE: Final = 0.05
"""A fall by more than this share of the rise is the end of a step; loading a model frees less than that."""


class IdleMemory(NamedTuple):
    """Reserved memory that is in no tensor, in bytes.

    Attributes:
        scattered: In free blocks that are too small for the request, on the stream with the most of them.
        pieces: The number of these blocks; None if only the allocator's statistics are known.
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
    known = file.statistics
    if file.is_async or ((file.is_cut or not file.segments) and known is None):
        return IdleMemory()
    if (file.is_cut or not file.segments) and known is not None:
        used = known.allocated_bytes if known.active_bytes is None else known.active_bytes
        scattered = known.inactive_split_bytes
        scattered = max(0, known.reserved_bytes - used) if scattered is None else scattered
        return IdleMemory(scattered, releasable=known.releasable_bytes)
    is_large = file.asked_bytes > _SMALL_SEGMENT_BYTES
    streams: dict[int, list[int]] = defaultdict(list)
    private = other_kind = private_reserved = releasable = 0
    for segment in file.segments:
        holes = [block.size_bytes for block in segment.blocks if block.state is BlockState.INACTIVE]
        if segment.pool != _SHARED_POOL:
            private += sum(holes)
            private_reserved += segment.size_bytes
        elif sum(holes) == segment.size_bytes:
            releasable += segment.size_bytes
        elif segment.is_large is is_large:
            streams[segment.stream] += holes
        else:
            other_kind += sum(holes)
    tight = [holes for holes in streams.values() if max(holes, default=0) < file.asked_bytes]
    own = max(tight, key=sum, default=[])
    others = sum(map(sum, streams.values())) - sum(own)
    return IdleMemory(
        sum(own), len(own), max(own, default=0), others, private, other_kind, private_reserved, releasable
    )


class OomTrend(NamedTuple):
    """What the last minute shows.

    Attributes:
        rise_bytes: How much the minimum of allocated memory grew from the first part of the history to the last. A
            step allocates and frees memory; the memory at its lowest point stays.
        only_rises: Whether it more than doubled and never fell, as while a model is loaded onto the GPU.
        rises_at_end: Whether it still grew at the end, about as fast as before.
        highest_bytes: The maximum of allocated memory in the samples before the step that failed.
        retries_count: How often the allocator freed its cache to get memory; None where it is not recorded.
    """

    seconds: float
    rise_bytes: int
    is_steady: bool
    only_rises: bool
    rises_at_end: bool
    highest_bytes: int
    retries_count: int | None

    @property
    def bytes_per_minute(self) -> float:
        """The rate of growth, between the middles of the first and the last part."""
        return self.rise_bytes * 60 * _PARTS / (self.seconds * (_PARTS - 1))


def trend_of(history: Sequence[OomSample], retries_count: int | None) -> OomTrend | None:
    """The trend of a history, or None if the history is too short."""
    if not history or history[0].seconds_before - history[-1].seconds_before < _MIN_SECONDS:
        return None
    begin, end = history[0].seconds_before, history[-1].seconds_before
    parts: list[list[int]] = [[] for _ in range(_PARTS)]
    for sample in history:
        passed = (begin - sample.seconds_before) / (begin - end)
        parts[min(_PARTS - 1, int(passed * _PARTS))].append(sample.allocated_bytes)
    if not all(parts):
        return None
    retries = history[0].alloc_retries_count
    rise = min(parts[-1]) - min(parts[0])
    falls = (before.allocated_bytes - after.allocated_bytes for before, after in pairwise(history))
    return OomTrend(
        seconds=begin - end,
        rise_bytes=rise,
        is_steady=_is_steady(parts),
        only_rises=rise > min(parts[0]) and max(falls) <= _MAX_FALL_SHARE * rise,
        rises_at_end=_rises_at_end(history, begin - end),
        highest_bytes=max(sample.allocated_bytes for sample in history if sample.seconds_before - end >= _STEP_SECONDS),
        retries_count=None if retries is None or retries_count is None else max(0, retries_count - retries),
    )


def _rises_at_end(history: Sequence[OomSample], seconds: float) -> bool:
    first, last = history[0], history[-1]
    end_seconds = max(_STEP_SECONDS, _END_SHARE * seconds)
    start = next(sample for sample in history if sample.seconds_before - last.seconds_before <= end_seconds)
    rise, end_rise = (last.allocated_bytes - sample.allocated_bytes for sample in (first, start))
    return end_rise >= _MIN_END_RATE_SHARE * rise * end_seconds / seconds


def _is_steady(parts: Sequence[Sequence[int]]) -> bool:
    """Whether the minimum grows from part to part, and the mean with it.

    If training steps and samples have almost the same period, the lowest sample drifts although nothing grows. The mean
    does not drift then.
    """
    floors = [min(part) for part in parts]
    growths = [after - before for before, after in pairwise(floors)]
    rise, swing = floors[-1] - floors[0], min(max(part) - min(part) for part in parts)
    is_even = min(growths) > 0 and max(growths) <= _MAX_PART_SHARE * rise
    is_large = rise >= max(_MIN_RISE_BYTES, _MIN_RISE_SHARE * swing)
    return is_even and is_large and fmean(parts[-1]) - fmean(parts[0]) >= rise / 2
