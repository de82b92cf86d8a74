"""The steps in the trace of a training run: annotations, or periods that repeat, or else the complete trace.

Their work on the GPU may be done long after the program went on to the next step.
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from gpumon.traces.host_work import HostWork
from gpumon.traces.kinds import Kind, is_data_wait
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
