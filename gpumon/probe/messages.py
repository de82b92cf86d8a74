"""What the probes of this host report: the state of each process, and the answers to requests."""

from dataclasses import dataclass
from enum import Enum

from gpumon.core.allocator import EmptyCacheResult, ProbedProcess, ProbeReading, Segment
from gpumon.core.collectives import FlightRecording
from gpumon.core.problems import Problem
from gpumon.core.stacks import ThreadStack
from gpumon.core.steps import StepObservation


class RequestKind(str, Enum):
    """What a client can request from a probe; the values are those of the socket's protocol."""

    SUMMARY = "summary"
    SEGMENTS = "segments"
    EMPTY_CACHE = "empty_cache"
    OBSERVE = "observe"
    """Sample the main thread and record its steps for a time."""
    STACKS = "stacks"
    """The stacks of all threads now."""
    FLIGHT_RECORDER = "flight_recorder"
    TRACE = "trace"
    """Record a trace with Kineto."""
    MEMORY_HISTORY = "memory_history"
    """Record the history of the allocator for a time, and write a memory snapshot."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A process in which a probe runs.

    Attributes:
        process: Its identity.
        reading: Its latest statistics, or None before the first.
        arrived_monotonic: When they arrived, in seconds of this host's monotonic clock.
        connected: Whether the probe can still answer. While a process is busy in one long call the connection stays,
            and the reading becomes old.
        is_foreign: Whether it belongs to another user: root reads what it sends, but opens no path that it names.
    """

    process: ProbedProcess
    reading: ProbeReading | None
    arrived_monotonic: float
    connected: bool = True
    is_foreign: bool = False

    @property
    def pid(self) -> int:
        """The PID of the process in the PID namespace of gpumon."""
        return self.process.pid

    def age_seconds(self, now: float) -> float:
        """The age of the reading.

        Args:
            now: Monotonic seconds.
        """
        return max(0.0, now - self.arrived_monotonic)


@dataclass(frozen=True, slots=True)
class SegmentMap:
    """The segments that the allocator holds, with their blocks.

    Attributes:
        segments: Sorted by device and address.
        is_cut: Whether there are more blocks than the probe sends.
        seconds: How long the process was paused to read them.
    """

    segments: tuple[Segment, ...]
    is_cut: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a probe wrote in its own folder; the client removes it when it has read it.

    Attributes:
        path: Its path in the mount namespace of the process.
        size_bytes: Its size.
        notes: What the reader must know, in sentences.
    """

    path: str
    size_bytes: int
    notes: tuple[str, ...] = ()


RequestResult = (
    str | SegmentMap | EmptyCacheResult | StepObservation | tuple[ThreadStack, ...] | FlightRecording | WrittenFile
)
"""The result of a request, by its kind in the order of `RequestKind`; both kinds of files are a `WrittenFile`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request.

    Attributes:
        pid: The process.
        id: The number that `ProbeWatcher.ask` returned.
        ask: What was requested.
        result: What was requested; None if the request failed.
        problem: Why there is no result, or None.
    """

    pid: int
    id: int
    ask: RequestKind
    result: RequestResult | None = None
    problem: Problem | None = None


ProbeMessage = Probe | Answer
"""A process that has connected, reported or disconnected; or an answer."""
