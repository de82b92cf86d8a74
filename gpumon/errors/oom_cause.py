"""Why an allocation failed, from the file that a probe wrote.

Without the cause, the allocation would have succeeded: fragmentation, a memory limit, other processes, or growth.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from gpumon.core.oom_file import OomFile
from gpumon.errors.memory_cause import MemoryCause, memory_cause
from gpumon.errors.memory_message import MemoryMessage
from gpumon.errors.oom_memory import IdleMemory, OomTrend, idle_memory, trend_of

_MIN_RELEVANT_SHARE: Final = 0.02
"""Less than this share of the GPU's memory is not relevant."""
_MAX_CONTEXT_BYTES: Final = round(0.8 * (1 << 30))
"""What the CUDA context and the libraries of a process usually take at most."""
_SLACK_BYTES: Final = 256 << 20
"""Memory that the driver reports as free but cannot allocate."""
_JUMP_FACTOR: Final = 1.1
"""A step that needs this many times the memory of earlier steps is larger than they were."""
_LOADING_FUNCTIONS: Final = frozenset(
    {"_apply", "load_state_dict", "from_pretrained", "load_weights", "persistent_load"}
)
"""Functions in which memory grows steadily because a model is loaded onto the GPU."""


@dataclass(frozen=True)
class OomFindings:
    """The conclusions from a file."""

    file: OomFile

    @cached_property
    def idle(self) -> IdleMemory:
        """The idle memory in the allocator."""
        return idle_memory(self.file)

    @cached_property
    def trend(self) -> OomTrend | None:
        """The trend of the last minute."""
        known = self.file.statistics
        return trend_of(self.file.history, None if known is None else known.alloc_retries_count)

    @cached_property
    def message(self) -> MemoryMessage:
        """The values that the text of the error also contains."""
        file, known = self.file, self.file.statistics
        return MemoryMessage(
            asked=file.asked_bytes,
            total=file.total_bytes,
            free=file.free_bytes,
            allowed=file.limit_bytes if (file.limit_bytes or 0) < (file.total_bytes or 0) else None,
            allocated=None if known is None else known.allocated_bytes,
            unallocated=None if known is None else max(0, known.reserved_bytes - known.allocated_bytes),
        )

    @property
    def min_relevant_bytes(self) -> float:
        """Memory below this is not relevant, compared with what the process may use."""
        return _MIN_RELEVANT_SHARE * (self.message.allowed or self.message.total or 0)

    @property
    def excess_outside(self) -> int:
        """How much of the memory outside of this allocator another process or a library holds: all but a context."""
        return max(0, (self.message.foreign or 0) - _MAX_CONTEXT_BYTES)

    @property
    def available(self) -> int:
        """What the driver would have allocated: free memory, as far as the process's limit allows."""
        free, allowed = self.message.free or 0, self.message.allowed
        return free if allowed is None else min(free, max(0, allowed - self.message.held))

    @property
    def is_capped(self) -> bool:
        """Whether the process's own limit was reached before the size of the GPU."""
        return self.message.allowed is not None and self.available < (self.message.free or 0)

    @property
    def is_impossible(self) -> bool:
        """Whether the request exceeds the memory of an empty GPU."""
        return self.message.asked > (self.message.total or 0)

    @property
    def would_fit(self) -> bool:
        """Whether enough memory is free after the failure: it was freed in the meantime."""
        return self.available >= self.message.asked + _SLACK_BYTES

    @property
    def grows(self) -> bool:
        """Whether memory grew steadily, but not because a model was loaded."""
        is_loading = any(frame.function in _LOADING_FUNCTIONS for frame in self.file.stack)
        return self.trend is not None and self.trend.is_steady and not is_loading

    @property
    def may_leak(self) -> bool:
        """Whether this much memory was available before without visible growth: a leak may be too slow for a minute."""
        is_usual = self.trend is not None and not self.grows and not self.jumps
        return is_usual and self.cause is MemoryCause.TOO_BIG and not self.is_impossible

    @property
    def wanted(self) -> int:
        """The memory in tensors with the request."""
        return (self.message.allocated or 0) + self.message.asked

    @property
    def fits_alone(self) -> bool:
        """Whether the GPU has enough memory for that without idle memory and without excess memory outside."""
        return self.wanted + min(self.message.foreign or 0, _MAX_CONTEXT_BYTES) <= (self.message.total or 0)

    @property
    def jumps(self) -> bool:
        """Whether far more memory was needed than in the complete minute before."""
        if self.trend is None or self.grows or self.wanted <= _JUMP_FACTOR * self.trend.highest_bytes:
            return False
        peak = (None if self.file.statistics is None else self.file.statistics.allocated_peak_bytes) or 0
        # The samples may all miss the highest point of a step.
        return peak <= (self.message.allocated or 0) or self.wanted > _JUMP_FACTOR * peak

    @property
    def failures(self) -> int:
        """How often the process has run out of memory, including this time."""
        return max(1, (None if self.file.statistics is None else self.file.statistics.ooms_count) or 0)

    @property
    def rescues(self) -> int:
        """How often, at least, freeing the cache helped in the minute; the cache is also freed before each failure."""
        retries = None if self.trend is None else self.trend.retries_count
        return max(0, (retries or 0) - self.failures)

    @property
    def lacked_only_growth(self) -> bool:
        """Whether the request would have succeeded without the growth in the minute."""
        return self.trend is not None and self.available + self.trend.rise_bytes >= self.message.asked

    @cached_property
    def is_misplaced(self) -> bool:
        """Whether enough memory is idle, but only where this request may not use it."""
        return self.cause is MemoryCause.FRAGMENTATION and not self._would_suffice(self.idle.scattered)

    @cached_property
    def cause(self) -> MemoryCause:
        """The cause."""
        message = self.message
        if message.total is None or message.free is None or message.allocated is None:
            return memory_cause(message)
        if self.is_impossible or self.would_fit:
            return MemoryCause.TOO_BIG if self.is_impossible else MemoryCause.UNKNOWN
        grown = self.trend.rise_bytes if self.trend is not None and self._leaks else 0
        if grown <= self.idle.scattered:  # else what grew is more than the pieces, and would reach any limit
            is_limited = self.is_capped and self.available < message.asked <= message.free + self.excess_outside
            if self._would_suffice(self.idle.scattered) or is_limited:
                is_in_pieces = self._would_suffice(self.idle.scattered)
                return MemoryCause.FRAGMENTATION if is_in_pieces else MemoryCause.CAP
        own = message.held + min(self.message.foreign or 0, _MAX_CONTEXT_BYTES)
        cause = memory_cause(replace(message, own=own, allowed=None, unallocated=0))  # idle memory would not help
        if cause is MemoryCause.OTHER_PROCESSES:
            return cause
        if self._would_suffice(self.idle.elsewhere) or self._leaks:
            return MemoryCause.FRAGMENTATION if self._would_suffice(self.idle.elsewhere) else MemoryCause.LEAK
        return MemoryCause.TOO_BIG if cause is MemoryCause.LEAK and self.trend is not None else cause

    @property
    def _leaks(self) -> bool:
        """Whether the growth is the cause: a step of this size succeeded before, or would have succeeded without it.

        It is not that of a model that was loaded before the failure.
        """
        if self.trend is None or not self.grows or (self.trend.only_rises and not self.trend.rises_at_end):
            return False
        return self.lacked_only_growth or self.wanted <= _JUMP_FACTOR * self.trend.highest_bytes

    def _would_suffice(self, idle: int) -> bool:
        """Whether the request would have succeeded with this much more memory."""
        is_relevant = idle >= max(self.message.asked / 2, self.min_relevant_bytes)
        return is_relevant and self.available + idle >= self.message.asked
