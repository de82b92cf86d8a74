"""When the steps of a trace were done on the GPU, which may be long after the program went on to the next step."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from gpumon.traces.host_work import HostWork
from gpumon.traces.steps import StepRange
from gpumon.traces.table import EventTable

BEHIND: Final = "each until its work on the GPU was done"


def steps_on_device(
    table: EventTable, host: HostWork, work: Sequence[int], steps: Sequence[StepRange]
) -> list[StepRange]:
    """The steps whose work on the GPU is in the trace, each from the end of all work before it.

    A program that does not wait for the GPU launches steps faster than the GPU executes them, until the queue of
    launches is full. The duration of such a step is that of its work.

    Args:
        table: The events.
        host: What the threads of the host did.
        work: Indexes of the events on the GPU in the order of their begin.
        steps: The steps of the program, in order.

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
