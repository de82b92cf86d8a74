"""What comes from the probes of this machine: how each process is, and the answers to what it was asked."""

from dataclasses import dataclass
from enum import Enum

from gpumon.core.allocator import EmptiedCache, ProbedProcess, ProbeReading, Segment
from gpumon.core.problems import Problem


class Ask(str, Enum):
    """What a probe can be asked for; the names of the socket's protocol."""

    SUMMARY = "summary"
    SEGMENTS = "segments"
    EMPTY_CACHE = "empty_cache"


@dataclass(frozen=True, slots=True)
class Probe:
    """A process that a probe runs in.

    Attributes:
        process: Who it is.
        reading: What it has told last, or None while it has told nothing.
        arrived_monotonic: When that came, by the machine's monotonic clock.
        connected: Whether there is still somebody to ask. While a process is busy in one long call it stays connected
            and its reading grows old.
    """

    process: ProbedProcess
    reading: ProbeReading | None
    arrived_monotonic: float
    connected: bool = True

    @property
    def pid(self) -> int:
        """Its PID as this machine's gpumon sees it."""
        return self.process.pid

    def age_seconds(self, now: float) -> float:
        """Age of the reading.

        Args:
            now: Monotonic seconds.
        """
        return max(0.0, now - self.arrived_monotonic)


@dataclass(frozen=True, slots=True)
class SegmentMap:
    """What the allocator has taken from the driver, and what it is cut into.

    Attributes:
        segments: By device and address.
        is_cut: Whether there are more blocks than the probe sends.
        seconds: How long the process was held up for it.
    """

    segments: tuple[Segment, ...]
    is_cut: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of something that was asked.

    Attributes:
        pid: The process that was asked.
        id: What `ProbeWatcher.ask` returned.
        ask: What it was asked for.
        result: The text of a summary, the segments, or what emptying the cache has done; None where that failed.
        problem: Why there is no result, if so.
    """

    pid: int
    id: int
    ask: Ask
    result: str | SegmentMap | EmptiedCache | None = None
    problem: Problem | None = None


ProbeNews = Probe | Answer
"""A process that has come, told something or gone; or an answer."""
