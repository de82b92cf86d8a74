"""The comparison of ranks, and the verdict on a straggler."""

import pytest

from gpumon.insight.bottlenecks.rank_comparison import compare
from gpumon.insight.bottlenecks.slowness_verdict import judge_traces
from gpumon.insight.bottlenecks.traced_account import traced_evidence
from gpumon.operations.why.examination import WhyReport
from gpumon.operations.why.processes import compared
from gpumon.traces.model import Trace
from tests.traces.maker import GEMM, NCCL, TraceMaker, training


def rank(number: int, late: int) -> Trace:
    """A rank that arrives ``late`` µs late at each collective, which ends on all ranks together."""
    maker = TraceMaker(distributedInfo={"rank": number, "world_size": 3})
    for step in range(3):
        at = 1000 * step
        maker.step(step, at, 1000)
        maker.work(GEMM, at, 400 + late, launched=at)
        maker.work(NCCL, at + 400 + late, 600 - late, launched=at + 5, more={"Collective name": "allreduce"})
    return maker.trace()


def test_the_rank_that_the_others_wait_for() -> None:
    comparison = compare([rank(0, 0), rank(1, 250), rank(2, 0)])
    assert comparison.slowest == "rank 1"
    (wait,) = comparison.waits
    assert (wait.rank, wait.wait_ns, wait.last_count, wait.collective) == ("rank 1", 250_000, 3, "allreduce")
    assert comparison.matched == 3


def test_a_straggler_is_the_cause_through_both_doors() -> None:
    traces = [rank(0, 0), rank(1, 250), rank(2, 0)]
    verdicts = judge_traces(traces)
    assert [verdict.causes[0].kind for verdict in verdicts] == ["straggler"] * 3
    assert verdicts[0].causes[0].bound_seconds == pytest.approx(750e-6)
    reports = [
        WhyReport(number, "", None, (), 5.0, traced_evidence(trace), verdicts[number])
        for number, trace in enumerate(traces)
    ]
    assert [report.verdict for report in compared(tuple(reports), {}).ranks] == list(verdicts)


def test_ranks_that_are_alike() -> None:
    assert compare([rank(0, 0), rank(1, 0)]).slowest is None
    assert "straggler" not in {cause.kind for cause in judge_traces([rank(0, 0), rank(1, 0)])[0].causes}


def test_traces_that_begin_at_different_times_are_matched_by_the_clock() -> None:
    first, second = training(4), training(4)
    second.events = [event for event in second.events if event["ts"] >= 1000]
    comparison = compare([first.trace(), second.trace()])
    assert comparison.matched == 3
    assert comparison.ranks == ("file 1", "file 2")


def test_collectives_that_do_not_match() -> None:
    other = training(3)
    for event in other.events:
        event["ts"] += 1e9
    comparison = compare([training(4).trace(), other.trace()])
    assert comparison.problem
