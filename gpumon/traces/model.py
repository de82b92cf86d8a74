"""What was found in a trace. Times are nanoseconds; those of moments count from the first event of the trace."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeVar

from gpumon.core.step_classes import COPIES, GPU_CLASSES

MAX_WORK: Final = GPU_CLASSES.index(COPIES)
"""The classes up to here are work of the GPU; the rest divides the time in which the GPU does nothing."""


@dataclass(frozen=True)
class Contribution:
    """A kernel, an operator or a call with its part of a class.

    Attributes:
        name: Its name.
        time_ns: Its time in the step.
        count: How many pieces of time that is.
        size_bytes: What it copied; None if it is no copy or the trace does not report it.
        line: The line of the program, where the trace has stacks.
    """

    name: str
    time_ns: int
    count: int
    size_bytes: int | None = None
    line: str = ""


@dataclass(frozen=True)
class ClassTime:
    """The time of a class in the median step.

    Attributes:
        name: The class, one of `GPU_CLASSES` or `CPU_CLASSES`.
        time_ns: Its time in the median step.
        min_ns: Its shortest time in any step.
        max_ns: Its longest time in any step.
        top: The largest contributions.
    """

    name: str
    time_ns: int
    min_ns: int
    max_ns: int
    top: tuple[Contribution, ...] = ()


@dataclass(frozen=True)
class TracedStep:
    """A step of a training run: a time range."""

    label: str
    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class Total:
    """A kernel, or on a CPU an operator, over the complete trace."""

    name: str
    kind: str
    time_ns: int
    count: int
    max_ns: int


@dataclass(frozen=True)
class Gap:
    """A time in which the GPU did nothing.

    Attributes:
        begin_ns: When it began.
        time_ns: Its length.
        cause: The class with the largest part of it.
        detail: What the CPU did, or waited for.
        after: The kernel that ended it.
        line: The line of the program, where the trace has stacks.
    """

    begin_ns: int
    time_ns: int
    cause: str
    detail: str
    after: str
    line: str = ""


@dataclass(frozen=True)
class Collective:
    """One run of a communication kernel."""

    name: str
    begin_ns: int
    time_ns: int


@dataclass(frozen=True)
class Lane:
    """A thread or a stream: a part of the columns of the timeline.

    Attributes:
        label: Its name.
        is_device: Whether it is a stream of a GPU.
        first: Index of its first event in the columns.
        count: Number of its events.
        busy_ns: Time with at least one event.
        depth: How many events are nested at most.
    """

    label: str
    is_device: bool
    first: int
    count: int
    busy_ns: int
    depth: int = 1


@dataclass(frozen=True)
class Trace:
    """One trace.

    Attributes:
        name: The path of the file as safe text.
        size_bytes: The size of the file.
        rank: The rank of the process in a distributed job, or None.
        world_size: The number of ranks, or None.
        device: The GPU that the account is about; None without work on a GPU.
        duration_ns: From the first event to the end of the last one.
        start_ns: When the first event began, in nanoseconds on the clock of the trace.
        events: Number of events by kind.
        step_source: What the steps were taken from.
        steps: The steps.
        median: Index of the step whose duration is the median.
        classes: The account of that step: the times add up to it.
        critical: What the critical path of that step consists of.
        without: How long a step takes without a cause, by the names of `gpumon.traces.what_if`, and how much of that is
            work of the GPU.
        kernels: Number of kernels in the median step.
        median_kernel_ns: Median duration of the kernels in the median step; None without kernels.
        problems: Why there is no verdict, in sentences; empty if there is one.
        notes: What else the reader must know.
        totals: Kernels, or on a CPU operators, with the most time.
        operators: Operators of the host in all steps, with the time of what they call; empty on a CPU.
        gaps: The longest times in which the GPU did nothing.
        collectives: Runs of communication kernels, in order.
        lanes: Threads and streams.
        texts: The names of the events in the columns.
    """

    name: str
    size_bytes: int
    rank: int | None
    world_size: int | None
    device: str | None
    duration_ns: int
    start_ns: int
    events: Mapping[str, int]
    step_source: str
    steps: tuple[TracedStep, ...]
    median: int
    classes: tuple[ClassTime, ...]
    critical: tuple[ClassTime, ...]
    without: Mapping[str, tuple[int, int, int]]
    kernels: int
    median_kernel_ns: int | None
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    totals: tuple[Total, ...]
    operators: tuple[Total, ...]
    gaps: tuple[Gap, ...]
    collectives: tuple[Collective, ...]
    lanes: tuple[Lane, ...]
    texts: tuple[str, ...]

    @property
    def step(self) -> TracedStep:
        """The median step."""
        return self.steps[self.median]

    @property
    def step_ns(self) -> int:
        """The duration of the median step."""
        return self.step.end_ns - self.step.begin_ns

    def class_time(self, name: str) -> ClassTime:
        """The time of a class; zero if it has none."""
        return next((item for item in self.classes if item.name == name), ClassTime(name, 0, 0, 0))


RecordT = TypeVar("RecordT")

_NESTED: Final = {
    "steps": TracedStep,
    "totals": Total,
    "operators": Total,
    "gaps": Gap,
    "collectives": Collective,
    "lanes": Lane,
}
_CLASSES: Final = ("classes", "critical")


def encode(trace: Trace) -> dict[str, Any]:
    """The trace as a JSON object."""
    document = {field.name: getattr(trace, field.name) for field in fields(trace)}
    for name in _NESTED:
        document[name] = [list(vars(item).values()) for item in document[name]]
    for name in _CLASSES:
        document[name] = [asdict(item) for item in document[name]]
    return document


def decode(document: dict[str, Any]) -> Trace:
    """The trace of a JSON object from `encode`."""
    values = dict(document)
    for name, record in _NESTED.items():
        values[name] = tuple(record(*item) for item in values[name])
    for name in _CLASSES:
        values[name] = tuple(
            ClassTime(**{**item, "top": tuple(Contribution(**part) for part in item["top"])}) for item in values[name]
        )
    values["without"] = {name: tuple(times) for name, times in values["without"].items()}
    for name in ("problems", "notes", "texts"):
        values[name] = tuple(values[name])
    return Trace(**values)
