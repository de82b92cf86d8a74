"""Why an allocation failed, from the file that a probe wrote.

Without the cause, the allocation would have succeeded: fragmentation, a memory limit, other processes, or growth.
PyTorch serves a request from one free block of the same stream, the same pool, and the same kind (small or large). The
failure therefore proves that no such block was large enough: if a free block is large enough for the request, the
request came on another stream. PyTorch frees completely idle segments before an allocation fails, except while a CUDA
graph is captured.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Final, NamedTuple

from gpumon.core.allocator import AllocatorStatistics, BlockState
from gpumon.core.oom_file import OomFile, OomSample
from gpumon.errors.memory import MemoryCause, MemoryMessage, memory_cause

_MIN_RELEVANT_SHARE: Final = 0.02
"""Less than this share of the GPU's memory is not relevant."""
_MAX_CONTEXT_BYTES: Final = round(0.8 * (1 << 30))
"""What the CUDA context and the libraries of a process usually take at most."""
_SLACK_BYTES: Final = 256 << 20
"""Memory that the driver reports as free but cannot allocate."""
_MIN_EXCESS_BYTES: Final = 1 << 30
"""Less memory than this outside of PyTorch, in addition to a context, may be a library of the same process."""
_JUMP_FACTOR: Final = 1.1
"""A step that needs this many times the memory of earlier steps is larger than they were."""
_LOADING_FUNCTIONS: Final = frozenset(
    {"_apply", "load_state_dict", "from_pretrained", "load_weights", "persistent_load"}
)
"""Functions in which memory grows steadily because a model is loaded onto the GPU."""

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
    known, has_all = file.statistics, bool(file.segments) and not file.is_cut
    if file.is_async or (known is None and not has_all):
        return IdleMemory()
    if known is not None and not has_all:
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
    """What the last minute shows; without a value if the history is too short.

    Attributes:
        rise_bytes: How much the minimum of allocated memory grew from the first part of the history to the last. A
            step allocates and frees memory; the memory at its lowest point stays.
        only_rises: Whether it more than doubled and never fell, as while a model is loaded onto the GPU.
        rises_at_end: Whether it still grew at the end, about as fast as before.
        highest_bytes: The maximum of allocated memory in the samples before the step that failed.
        bytes_per_minute: The rate of growth, between the middles of the first and the last part.
        retries_count: How often the allocator freed its cache to get memory; None where it is not recorded.
    """

    seconds: float = 0.0
    rise_bytes: int = 0
    is_steady: bool = False
    only_rises: bool = False
    rises_at_end: bool = False
    highest_bytes: int = 0
    bytes_per_minute: float = 0.0
    retries_count: int | None = None


def trend_of(history: Sequence[OomSample], retries_count: int | None) -> OomTrend:
    """The trend of a history."""
    if not history or history[0].seconds_before - history[-1].seconds_before < _MIN_SECONDS:
        return OomTrend()
    begin, end = history[0].seconds_before, history[-1].seconds_before
    parts: list[list[int]] = [[] for _ in range(_PARTS)]
    for sample in history:
        passed = (begin - sample.seconds_before) / (begin - end)
        parts[min(_PARTS - 1, int(passed * _PARTS))].append(sample.allocated_bytes)
    if not all(parts):
        return OomTrend()
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
        bytes_per_minute=rise * 60 * _PARTS / ((begin - end) * (_PARTS - 1)),
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


class OomFindings:
    """The conclusions from a file.

    Attributes:
        statistics: The statistics, or none of them.
        message: The values that the text of the error also contains.
        wanted: The memory in tensors with the request, in bytes.
        failures: How often the process has run out of memory, including this time.
        rescues: How often, at least, freeing the cache helped in the minute; it is also freed before each failure.
        sentence: The name of the sentence about the cause; empty if the file shows no more than the text of the error.
        observations: The names of the sentences about what else is worth knowing, whatever the cause is.
    """

    def __init__(self, file: OomFile) -> None:
        self.file = file
        self.statistics = known = file.statistics or AllocatorStatistics(0, 0, 0)
        self.message = message = _message_of(file)
        self.idle = idle_memory(file)
        self.trend = trend_of(file.history, known.alloc_retries_count)
        self.wanted = (message.allocated or 0) + message.asked
        self.failures = max(1, known.ooms_count or 0)
        self.rescues = max(0, (self.trend.retries_count or 0) - self.failures)
        # All but a context is held by another process or a library.
        self._outside = max(0, (message.foreign or 0) - _MAX_CONTEXT_BYTES)
        self._min_relevant = _MIN_RELEVANT_SHARE * (message.allowed or message.total or 0)
        free, limit = message.free or 0, message.allowed
        # What the driver would have allocated: free memory, as far as the process's limit allows.
        self._available = free if limit is None else min(free, max(0, limit - message.held))
        is_loading = any(frame.function in _LOADING_FUNCTIONS for frame in file.stack)
        self._grows = self.trend.is_steady and not is_loading
        # Whether the request would have succeeded without the growth in the minute.
        self._lacked_growth = self.trend.seconds > 0 and self._available + self.trend.rise_bytes >= message.asked
        self.cause, self.sentence = self._verdict()
        self.observations = [name for name, is_true in self._observed().items() if is_true]

    def _verdict(self) -> tuple[MemoryCause, str]:
        """The cause, and the name of the sentence about it."""
        message, asked = self.message, self.message.asked
        if self._available >= asked + _SLACK_BYTES:  # it was freed in the meantime
            return MemoryCause.UNKNOWN, "measured unknown"
        if message.total is None or message.free is None or message.allocated is None:
            return memory_cause(message), ""
        leaks, is_in_pieces = self._leaks(), self._would_suffice(self.idle.scattered)
        # What grew by more than the pieces would fill them, and reach any limit.
        is_small = not leaks or self.trend.rise_bytes <= self.idle.scattered
        is_limited = self._available < min(asked, message.free) and asked <= message.free + self._outside
        own = message.held + min(message.foreign or 0, _MAX_CONTEXT_BYTES)
        other = memory_cause(replace(message, own=own, allowed=None, unallocated=0))  # idle memory would not help
        is_no_leak = other is MemoryCause.LEAK and self.trend.seconds > 0
        pieces = "measured fragmentation" if self.idle.pieces else ""
        others = "with others" if self._outside >= _MIN_EXCESS_BYTES else "without others"
        is_enough = self.wanted + min(message.foreign or 0, _MAX_CONTEXT_BYTES) <= message.total
        too_big = f"measured too_big {'alone' if is_enough else others}"
        causes = (
            (asked > message.total, MemoryCause.TOO_BIG, "measured impossible"),
            (is_small and is_in_pieces, MemoryCause.FRAGMENTATION, pieces),
            (is_small and is_limited, MemoryCause.CAP, ""),
            (other is MemoryCause.OTHER_PROCESSES, other, "measured others"),
            (self._would_suffice(self.idle.elsewhere), MemoryCause.FRAGMENTATION, "measured misplaced"),
            (leaks, MemoryCause.LEAK, "measured leak growth" if self._lacked_growth else "measured leak"),
            (other is MemoryCause.TOO_BIG or is_no_leak, MemoryCause.TOO_BIG, too_big),
        )
        return next(((cause, sentence) for is_true, cause, sentence in causes if is_true), (other, ""))

    def _leaks(self) -> bool:
        """Whether the growth is the cause: a step of this size succeeded before, or would have succeeded without it.

        It is not that of a model that was loaded before the failure.
        """
        goes_on = self._grows and (self.trend.rises_at_end or not self.trend.only_rises)
        return goes_on and (self._lacked_growth or self.wanted <= _JUMP_FACTOR * self.trend.highest_bytes)

    def _would_suffice(self, idle: int) -> bool:
        """Whether the request would have succeeded with this much more memory."""
        is_relevant = idle >= max(self.message.asked / 2, self._min_relevant)
        return is_relevant and self._available + idle >= self.message.asked

    def _observed(self) -> dict[str, bool]:
        """What the last minute shows, and what else may be worth knowing: whether each is so."""
        cause, trend, known, message = self.cause, self.trend, self.statistics, self.message
        is_watched, relevant = trend.seconds > 0, max(1, self._min_relevant)
        may_be_usual = cause is MemoryCause.TOO_BIG and self.sentence != "measured impossible"
        peak = known.allocated_peak_bytes or 0
        is_above_peak = peak <= (message.allocated or 0) or self.wanted > _JUMP_FACTOR * peak  # samples may miss it
        jumps = not self._grows and self.wanted > _JUMP_FACTOR * trend.highest_bytes and is_above_peak
        return {
            "few samples": not is_watched and (may_be_usual or cause is MemoryCause.LEAK),
            "grows": self._grows and cause is not MemoryCause.LEAK,
            "may leak": is_watched and may_be_usual and not self._grows and not jumps,
            "jumps": is_watched and jumps,
            "rescues": self.rescues > 0,
            "failures": self.failures > 1,
            "expandable": cause is MemoryCause.FRAGMENTATION and self.file.is_expandable is True,
            "capped": cause is not MemoryCause.CAP and self._available < (message.free or 0),
            "private": (self.idle.private_reserved or 0) >= relevant,
            "waiting": (known.freed_waiting_bytes or 0) >= relevant,
            "outside": cause is not MemoryCause.OTHER_PROCESSES and self._outside >= _MIN_EXCESS_BYTES,
            "cut blocks": self.file.is_cut,
        }


def _message_of(file: OomFile) -> MemoryMessage:
    known, limit = file.statistics, file.limit_bytes or 0
    return MemoryMessage(
        asked=file.asked_bytes,
        total=file.total_bytes,
        free=file.free_bytes,
        allowed=file.limit_bytes if limit < (file.total_bytes or 0) else None,
        allocated=None if known is None else known.allocated_bytes,
        unallocated=None if known is None else max(0, known.reserved_bytes - known.allocated_bytes),
    )
