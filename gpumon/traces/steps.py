"""The steps in the trace of a training run: annotations, or periods that repeat, or else the complete trace."""

import re
from collections import Counter, defaultdict
from itertools import pairwise
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
