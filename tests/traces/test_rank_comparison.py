"""The comparison of ranks."""

from gpumon.traces.model import Trace
from gpumon.traces.rank_comparison import compare
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


def test_ranks_that_are_alike() -> None:
    comparison = compare([rank(0, 0), rank(1, 0)])
    assert comparison.slowest is None


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
