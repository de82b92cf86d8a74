"""Why an allocation failed, by the file that a probe has left.

Every cause is one without which the request would have been served: the pieces, the cap, the others, the growth.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from gpumon.diagnosis.memory_cause import MemoryCause, memory_cause
from gpumon.diagnosis.memory_message import MemoryMessage
from gpumon.diagnosis.oom_file import OomFile
from gpumon.diagnosis.oom_idle import IdleMemory, idle_memory
from gpumon.diagnosis.oom_trend import Trend, trend_of

_MATTERS_SHARE: Final = 0.02
"""Less of the GPU than this does not matter."""
_CONTEXT_BYTES: Final = round(0.8 * (1 << 30))
"""What a process's own CUDA context and libraries take at most, as a rule."""
_SLACK_BYTES: Final = 256 << 20
"""The driver cannot give away the last of what it calls free."""
_JUMP: Final = 1.1
_LOADING: Final = frozenset({"_apply", "load_state_dict", "from_pretrained", "load_weights", "persistent_load"})
"""Calls below which memory grows steadily because a model is brought onto the GPU."""


@dataclass(frozen=True)
class OomFindings:
    """What a file comes to.

    Attributes:
        file: The file.
    """

    file: OomFile

    @cached_property
    def idle(self) -> IdleMemory:
        """What lay idle in the allocator."""
        return idle_memory(self.file)

    @cached_property
    def trend(self) -> Trend | None:
        """How the last minute went."""
        kept = self.file.statistics
        return trend_of(self.file.history, None if kept is None else kept.alloc_retries_count)

    @cached_property
    def message(self) -> MemoryMessage:
        """The figures that the text of the error has as well."""
        file, kept = self.file, self.file.statistics
        return MemoryMessage(
            asked=file.asked_bytes,
            total=file.total_bytes,
            free=file.free_bytes,
            allowed=file.limit_bytes if (file.limit_bytes or 0) < (file.total_bytes or 0) else None,
            allocated=None if kept is None else kept.allocated_bytes,
            unallocated=None if kept is None else max(0, kept.reserved_bytes - kept.allocated_bytes),
        )

    @property
    def matters(self) -> float:
        """What is less than this does not matter, of all that the process may have."""
        return _MATTERS_SHARE * (self.message.allowed or self.message.total or 0)

    @property
    def outside(self) -> int | None:
        """What is held outside of this allocator: by the process's own context and libraries, and by all others."""
        return self.message.foreign

    @property
    def others(self) -> int:
        """What is held beyond a context's size, so by others or by a library."""
        return max(0, (self.outside or 0) - _CONTEXT_BYTES)

    @property
    def room(self) -> int:
        """What the driver would have given: what is free, but no more than the cap leaves."""
        free, allowed = self.message.free or 0, self.message.allowed
        return free if allowed is None else min(free, max(0, allowed - self.message.held))

    @property
    def is_capped(self) -> bool:
        """Whether the process's own cap was in the way before the size of the GPU was."""
        return self.message.allowed is not None and self.room < (self.message.free or 0)

    @property
    def is_impossible(self) -> bool:
        """Whether the empty GPU could not have held the request."""
        return self.message.asked > (self.message.total or 0)

    @property
    def would_fit(self) -> bool:
        """Whether as much as was asked for is free after all: somebody has given it back meanwhile."""
        return self.room >= self.message.asked + _SLACK_BYTES

    @property
    def grows(self) -> bool:
        """Whether memory grew steadily, and not because a model was being loaded."""
        is_loading = any(frame.function in _LOADING for frame in self.file.stack)
        return self.trend is not None and self.trend.is_steady and not is_loading

    @property
    def may_leak(self) -> bool:
        """Whether as much had fit before, though nothing is seen to grow: a leak may be too slow for a minute."""
        is_usual = self.trend is not None and not self.grows and not self.jumps
        return is_usual and self.cause is MemoryCause.TOO_BIG and not self.is_impossible

    @property
    def wanted(self) -> int:
        """What tensors would have held with the request."""
        return (self.message.allocated or 0) + self.message.asked

    @property
    def fits_alone(self) -> bool:
        """Whether the GPU could hold that, if nothing were idle and nothing held beyond a context's size."""
        return self.wanted + min(self.outside or 0, _CONTEXT_BYTES) <= (self.message.total or 0)

    @property
    def jumps(self) -> bool:
        """Whether far more was wanted than in the whole minute before."""
        if self.trend is None or self.grows or self.wanted <= _JUMP * self.trend.highest_bytes:
            return False
        now, peak = self.message.allocated or 0, self._peak
        return peak <= now or self.wanted > _JUMP * peak  # readings may all have missed the highest point of a step

    @property
    def failures(self) -> int:
        """How often the process has run out of memory, this time included."""
        kept = self.file.statistics
        return max(1, (None if kept is None else kept.ooms_count) or 0)

    @property
    def rescues(self) -> int:
        """How often in the minute giving back the cache helped, at least; it was given back for each failure, too."""
        retries = None if self.trend is None else self.trend.retries_count
        return max(0, (retries or 0) - self.failures)

    @property
    def lacked_only_growth(self) -> bool:
        """Whether the request would have been served without what came to stay in the minute."""
        return self.trend is not None and self.room + self.trend.rise_bytes >= self.message.asked

    @cached_property
    def is_misplaced(self) -> bool:
        """Whether enough lay idle, but not where this request may take it."""
        return self.cause is MemoryCause.FRAGMENTATION and not self._would_do(self.idle.scattered)

    @cached_property
    def cause(self) -> MemoryCause:
        """Which of the causes it is."""
        message = self.message
        if message.total is None or message.free is None or message.allocated is None:
            return memory_cause(message)
        if self.is_impossible or self.would_fit:
            return MemoryCause.TOO_BIG if self.is_impossible else MemoryCause.UNKNOWN
        if self._would_do(self.idle.scattered):
            return MemoryCause.FRAGMENTATION
        if self.is_capped and self.room < message.asked <= message.free + self.others:
            return MemoryCause.CAP
        return self._cause_of_full_gpu()

    def _cause_of_full_gpu(self) -> MemoryCause:
        message = self.message
        own = message.held + min(self.outside or 0, _CONTEXT_BYTES)
        found = memory_cause(replace(message, own=own, allowed=None, unallocated=0))  # nothing that is idle would help
        if found is MemoryCause.NEIGHBOUR:
            return found
        if self._would_do(self.idle.elsewhere):
            return MemoryCause.FRAGMENTATION
        if self._leaks:
            return MemoryCause.LEAK
        is_full_of_the_same = found is MemoryCause.LEAK and self.trend is not None
        return MemoryCause.TOO_BIG if is_full_of_the_same else found

    @property
    def _leaks(self) -> bool:
        """Whether the growth is what was too much: as large a step had fit before, or would have without it."""
        if self.trend is None or not self.grows or self.trend.is_filling:
            return False
        return self.lacked_only_growth or self.wanted <= _JUMP * self.trend.highest_bytes

    @property
    def _peak(self) -> int:
        """The most that tensors ever held, as far as the allocator's books say."""
        kept = self.file.statistics
        return (None if kept is None else kept.allocated_peak_bytes) or 0

    def _would_do(self, idle: int) -> bool:
        """Whether the request would have been served if it could have had this, too."""
        return idle >= max(self.message.asked / 2, self.matters) and self.room + idle >= self.message.asked
