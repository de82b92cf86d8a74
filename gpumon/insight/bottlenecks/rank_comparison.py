"""The traces of several ranks of one job: their spread, the slowest rank, and who waits for whom."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gpumon.traces.model import Collective, Trace

_MIN_WAIT_SHARE: Final = 0.01
"""A smaller part of the step that others wait for a rank makes no rank the slowest one."""


@dataclass(frozen=True)
class RankWait:
    """How long the other ranks wait for one rank in collectives, in each step.

    Attributes:
        rank: The rank that comes last.
        wait_ns: The time that each of the others waits for it on average, in one step.
        last_count: In how many collectives it comes last.
        collective: The collective with most of the time.
    """

    rank: str
    wait_ns: int
    last_count: int
    collective: str


@dataclass(frozen=True)
class RankComparison:
    """What several traces show together.

    Attributes:
        ranks: Names of the ranks in the order of the traces.
        slowest: The rank that the others wait for, or whose step is longest; None if all are alike.
        reason: Why, in a clause.
        waits: Who waits for whom, the longest wait first.
        matched: How many collectives were found in every trace.
        problem: Why collectives cannot be compared, in a sentence; empty if they can.
    """

    ranks: tuple[str, ...]
    slowest: str | None
    reason: str
    waits: tuple[RankWait, ...]
    matched: int
    problem: str


def rank_names(traces: Sequence[Trace]) -> tuple[str, ...]:
    """A name for each trace: its rank, or its position where ranks are missing or repeated."""
    ranks = [trace.rank for trace in traces]
    if None in ranks or len(set(ranks)) < len(ranks):
        return tuple(f"file {number}" for number in range(1, len(traces) + 1))
    return tuple(f"rank {rank}" for rank in ranks)


def compare(traces: Sequence[Trace]) -> RankComparison:
    """Compare the ranks of a job.

    A collective ends on all ranks together, and begins on each when the rank arrives. So the rank with the shortest
    run came last, and each other rank waited for it as long as its own run is longer. This needs no common clock.
    """
    names = rank_names(traces)
    waits: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    counts: dict[int, int] = defaultdict(int)
    matched = 0
    for runs in _matched(traces):
        matched += 1
        times = [run.time_ns for run in runs]
        last = times.index(min(times))
        counts[last] += 1
        waits[last][runs[last].name] += (sum(times) - len(times) * times[last]) // max(1, len(times) - 1)
    steps = max(1, min(len(trace.steps) for trace in traces))
    result = sorted(
        (
            RankWait(names[rank], sum(by_name.values()) // steps, counts[rank], max(by_name, key=by_name.__getitem__))
            for rank, by_name in waits.items()
        ),
        key=lambda wait: -wait.wait_ns,
    )
    slowest, reason = _slowest(traces, names, result)
    has_collectives = any(trace.collectives for trace in traces)
    problem = "The collectives of the traces do not match." if has_collectives and not matched else ""
    return RankComparison(names, slowest, reason, tuple(result), matched, problem)


def _slowest(traces: Sequence[Trace], names: Sequence[str], waits: Sequence[RankWait]) -> tuple[str | None, str]:
    shortest, longest = min(traces, key=lambda trace: trace.step_ns), max(traces, key=lambda trace: trace.step_ns)
    limit = _MIN_WAIT_SHARE * longest.step_ns
    if waits and waits[0].wait_ns >= limit:
        return waits[0].rank, "the others wait for it in collectives"
    if longest.step_ns - shortest.step_ns >= limit:
        return names[traces.index(longest)], "its step is the longest"
    return None, ""


def _matched(traces: Sequence[Trace]) -> Iterator[list[Collective]]:
    """The runs of each collective, one of each trace."""
    by_trace = [_by_name(trace) for trace in traces]
    for name in set.intersection(*(set(runs) for runs in by_trace)):
        lists = [runs[name] for runs in by_trace]
        if len({len(runs) for runs in lists}) == 1:
            yield from (list(runs) for runs in zip(*lists, strict=True))
        else:
            yield from _overlapping(lists, [trace.start_ns for trace in traces])


def _by_name(trace: Trace) -> dict[str, list[Collective]]:
    """The collectives within the steps, by name."""
    begin, end = trace.steps[0].begin_ns, trace.steps[-1].end_ns
    result: dict[str, list[Collective]] = defaultdict(list)
    for run in trace.collectives:
        if begin <= run.begin_ns < end:
            result[run.name].append(run)
    return result


def _overlapping(lists: Sequence[Sequence[Collective]], starts: Sequence[int]) -> Iterator[list[Collective]]:
    """Runs that overlap on the clock of the traces, where their numbers differ."""
    fewest = min(range(len(lists)), key=lambda index: len(lists[index]))
    ends = [[start + run.begin_ns + run.time_ns for run in runs] for runs, start in zip(lists, starts, strict=True)]
    for run in lists[fewest]:
        begin = starts[fewest] + run.begin_ns
        end = begin + run.time_ns
        runs = []
        for index, others in enumerate(lists):
            position = bisect_right(ends[index], begin)
            if position == len(others) or starts[index] + others[position].begin_ns >= end:
                break
            runs.append(others[position])
        else:
            yield runs
