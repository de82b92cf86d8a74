"""The account of a step: every nanosecond of it belongs to exactly one class."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low
from typing import Final, NamedTuple

from gpumon.traces.host_work import HostWork
from gpumon.traces.kinds import Kind
from gpumon.traces.model import ClassTime, Contribution
from gpumon.traces.pieces import TimePiece, TimePieces
from gpumon.traces.steps import StepRange
from gpumon.traces.table import EventTable

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
    table: EventTable,
    host: HostWork,
    pieces: TimePieces,
    steps: Sequence[StepRange],
    classes: ClassNames,
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
