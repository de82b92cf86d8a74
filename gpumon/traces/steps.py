"""The steps of a trace, and the account of a step: every nanosecond of it belongs to exactly one class."""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from statistics import median_low
from typing import Final, NamedTuple

from gpumon.traces.host_work import HostWork
from gpumon.traces.kinds import Kind, is_data_wait
from gpumon.traces.model import ClassTime, Contribution
from gpumon.traces.pieces import TimePiece, TimePieces
from gpumon.traces.table import EventTable

_PROFILER_STEP: Final = re.compile(r"ProfilerStep#(\d{1,12})")
_OPTIMIZER: Final = re.compile(r"Optimizer\.step#")
_MIN_PERIODS: Final = 2
_MAX_STEPS: Final = 10_000
_MAX_PAUSE: Final = 0.5
"""Time between two annotations belongs to the first one up to this part of its length."""

COMPLETE: Final = "the complete trace as one step, because it has no annotations of steps"
BEHIND: Final = "each until its work on the GPU was done"


class StepRange(NamedTuple):
    """A step on the clock of the trace."""

    label: str
    begin: int
    end: int


class FoundSteps(NamedTuple):
    """The steps of a trace, and what they were taken from."""

    source: str
    steps: list[StepRange]


def find_steps(table: EventTable, host: HostWork, begin: int, end: int) -> FoundSteps:
    """The steps of a trace that lasts from ``begin`` to ``end``."""
    annotated: list[StepRange] = []
    optimizer: dict[int, list[int]] = defaultdict(list)
    data: list[int] = []
    is_step = [_PROFILER_STEP.match(text) for text in table.texts]
    is_optimizer = [_OPTIMIZER.match(text) is not None for text in table.texts]
    is_data = [is_data_wait(text) for text in table.texts]
    for index in range(len(table)):
        if table.kinds[index] != Kind.ANNOTATION:
            continue
        name = table.names[index]
        if is_step[name]:
            annotated.append(StepRange(f"step {is_step[name][1]}", table.begins[index], table.ends[index]))  # type: ignore[index]
        elif is_optimizer[name]:
            optimizer[name].append(table.ends[index])
        elif is_data[name]:
            data.append(table.begins[index])
    if annotated:
        return FoundSteps("annotations of torch.profiler (ProfilerStep)", _closed(annotated))
    most = Counter({name: len(ends) for name, ends in optimizer.items()}).most_common(1)
    candidates = (
        ("the time from one optimizer step to the next", sorted(optimizer[most[0][0]]) if most else []),
        ("the time from one batch to the next", sorted(data)),
        ("the time from one launch of a CUDA graph to the next", sorted(host.graph_launches)),
    )
    for source, bounds in candidates:
        steps = [
            StepRange(f"period {number}", first, last)
            for number, (first, last) in enumerate(pairwise(bounds), 1)
            if last > first
        ]
        if len(steps) >= _MIN_PERIODS:
            return FoundSteps(source, steps[:_MAX_STEPS])
    return FoundSteps(COMPLETE, [StepRange("complete trace", begin, end)])


def _closed(annotated: list[StepRange]) -> list[StepRange]:
    """The annotations as steps without pauses and without overlaps."""
    annotated = sorted(annotated, key=lambda step: (step.begin, -step.end))[:_MAX_STEPS]
    steps: list[StepRange] = []
    for number, step in enumerate(annotated):
        end = step.end
        if number + 1 < len(annotated):
            following = annotated[number + 1].begin
            if following < end or following - end <= _MAX_PAUSE * (end - step.begin):
                end = following
        if end > step.begin:
            steps.append(step._replace(end=end))
    return steps or annotated[:1]


def steps_on_device(
    table: EventTable, host: HostWork, work: Sequence[int], steps: Sequence[StepRange]
) -> list[StepRange]:
    """The steps whose work on the GPU is in the trace, each from the end of all work before it.

    A program that does not wait for the GPU launches steps faster than the GPU executes them, until the queue of
    launches is full. The duration of such a step is that of its work.

    Returns:
        The steps; empty if the work of none is complete in the trace.
    """
    launched = sorted(
        (table.begins[launch], table.ends[event])
        for event in work
        if (launch := host.launches.get(table.correlations[event])) is not None
    )
    if not launched:
        return list(steps)
    all_launches = sorted(table.begins[launch] for launch in host.launches.values())
    moments = [moment for moment, _ in launched]
    done = list(accumulate((end for _, end in launched), max, initial=_end_of_earlier_work(table, host, work)))

    def end_of_work(moment: int) -> int | None:
        """When all that was launched before a moment was done; None if the trace ends earlier."""
        latest = bisect_left(all_launches, moment) - 1
        if latest >= 0 and all_launches[latest] > moments[-1]:
            return None
        return max(moment, done[bisect_left(moments, moment)])

    aligned = []
    for step in steps:
        begin, end = end_of_work(step.begin), end_of_work(step.end)
        if begin is not None and end is not None and end > begin:
            aligned.append(StepRange(step.label, begin, end))
    return aligned


def _end_of_earlier_work(table: EventTable, host: HostWork, work: Sequence[int]) -> int:
    """The end of the work at the begin of the trace that was launched before the trace began."""
    end = 0
    for event in work:
        if table.correlations[event] in host.launches:
            break
        end = max(end, table.ends[event])
    return end


_MAX_TOP: Final = 20


class ClassNames(NamedTuple):
    """The classes of an account in their order, and the name of what no piece covers: it belongs to the last one."""

    names: Sequence[str]
    uncovered: str


@dataclass
class _Sum:
    """What an event name adds to a class."""

    time: int = 0
    count: int = 0
    size_bytes: int | None = None
    longest: TimePiece | None = None
    longest_ns: int = 0
    events: set[int] = field(default_factory=set)


def median_step(steps: Sequence[StepRange]) -> int:
    """The index of the step whose duration is the median; of several with this duration, the one in the middle."""
    durations = [step.end - step.begin for step in steps]
    median = median_low(durations)
    indexes = [index for index, duration in enumerate(durations) if duration == median]
    return indexes[len(indexes) // 2]


def step_times(pieces: TimePieces, step: StepRange, classes: int) -> list[int]:
    """The time of each class in a step; what no piece covers belongs to the last class."""
    times = [0] * classes
    for piece in pieces.within(step.begin, step.end):
        times[piece.share] += piece.length
    times[-1] += step.end - step.begin - sum(times)
    return times


def class_times(
    table: EventTable, host: HostWork, pieces: TimePieces, steps: Sequence[StepRange], classes: ClassNames
) -> tuple[ClassTime, ...]:
    """The account of the median step, with the range of each class over all steps."""
    every = [step_times(pieces, step, len(classes.names)) for step in steps]
    index = median_step(steps)
    step = steps[index]
    median = ((piece.length, piece) for piece in pieces.within(step.begin, step.end))
    result = account_of(table, host, median, classes, step.end - step.begin)
    return tuple(
        replace(item, min_ns=min(step[number] for step in every), max_ns=max(step[number] for step in every))
        for number, item in enumerate(result)
    )


def account_of(
    table: EventTable, host: HostWork, pieces: Iterable[tuple[int, TimePiece]], classes: ClassNames, duration: int
) -> tuple[ClassTime, ...]:
    """The time of each class, and what it consists of.

    What no piece covers belongs to the last class.
    """
    sums: dict[tuple[int, int], _Sum] = {}
    for time, piece in pieces:
        _add(table, sums.setdefault((piece.share, piece.name), _Sum()), time, piece)
    rest = duration - sum(part.time for part in sums.values())
    result = []
    for number, name in enumerate(classes.names):
        parts = sorted(
            ((text, part) for (share, text), part in sums.items() if share == number), key=lambda item: -item[1].time
        )
        top = [_contribution(table, host, table.texts[text], part) for text, part in parts[:_MAX_TOP]]
        time = sum(part.time for _, part in parts)
        if number == len(classes.names) - 1 and rest:
            time += rest
            top = sorted([*top, Contribution(classes.uncovered, rest, 1)], key=lambda item: -item.time_ns)
        result.append(ClassTime(name, time, time, time, tuple(top)))
    return tuple(result)


def _add(table: EventTable, part: _Sum, time: int, piece: TimePiece) -> None:
    part.time += time
    part.count += 1
    if part.longest is None or time > part.longest_ns:
        part.longest, part.longest_ns = piece, time
    facts = table.copies.get(piece.event)
    if facts is not None and facts.size_bytes is not None and piece.event not in part.events:
        part.events.add(piece.event)
        part.size_bytes = (part.size_bytes or 0) + facts.size_bytes


def _contribution(table: EventTable, host: HostWork, name: str, part: _Sum) -> Contribution:
    line = "" if part.longest is None else line_of(table, host, part.longest)
    return Contribution(name, part.time, part.count, part.size_bytes, line)


def line_of(table: EventTable, host: HostWork, piece: TimePiece) -> str:
    """The line of the program that a piece of time belongs to; empty where the trace has no stacks.

    The line of work on the GPU is the one that launched it.
    """
    if piece.event < 0:
        return host.line_at(host.main_lane, piece.begin)
    event = piece.event
    if table.kinds[event] in {Kind.KERNEL, Kind.COPY, Kind.MEMSET}:
        launch = host.launches.get(table.correlations[event])
        return "" if launch is None else host.line_at(table.lanes[launch], table.begins[launch])
    return host.line_at(table.lanes[event], table.begins[event])
