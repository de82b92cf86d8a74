"""The verdict on a step, and the comparison of ranks."""

from collections.abc import Callable

import pytest

from gpumon.traces.model import Trace
from gpumon.traces.ranks import compare
from gpumon.traces.verdict import judge
from tests.traces.maker import ELEMENTWISE, GEMM, NCCL, PAGEABLE, SGEMM, TraceMaker, training


def test_causes_are_ranked_by_what_they_cost() -> None:
    verdict = judge(training().trace())
    assert verdict.is_decided
    assert [cause.name for cause in verdict.causes] == [
        "without_tensor_cores",
        "communication",
        "synchronization",
        "data",
        "copies",
    ]
    first = verdict.causes[0]
    assert (first.time_ns, first.bound_ns, first.share) == (180_000, 820_000, 0.18)
    assert "takes 820 µs at best instead of 1.00 ms" in verdict.summary


def steps(add: Callable[[TraceMaker, int], None]) -> Trace:
    maker = TraceMaker()
    for number in range(3):
        maker.step(number, 1000 * number, 1000)
        add(maker, 1000 * number)
    return maker.trace()


def loader(maker: TraceMaker, at: int) -> None:
    maker.data(at, 600)
    maker.work(GEMM, at + 620, 380, launched=at + 610)


def item(maker: TraceMaker, at: int) -> None:
    maker.work(GEMM, at + 300, 700, launched=at + 290)
    maker.operator("aten::item", at + 500, 502)


def small(maker: TraceMaker, at: int) -> None:
    for number in range(100):
        maker.work(ELEMENTWISE, at + 10 * number + 6, 3, launched=at + 10 * number)


def single_precision(maker: TraceMaker, at: int) -> None:
    maker.work(SGEMM, at, 950, launched=at)


def elementwise(maker: TraceMaker, at: int) -> None:
    maker.work(GEMM, at, 400, launched=at)
    maker.work(ELEMENTWISE, at + 400, 600, launched=at)


def pageable(maker: TraceMaker, at: int) -> None:
    maker.copy(PAGEABLE, at, 500, 1 << 28, launched=at)
    maker.work(GEMM, at + 500, 500, launched=at)


def exposed(maker: TraceMaker, at: int) -> None:
    maker.work(GEMM, at, 600, launched=at)
    maker.work(NCCL, at + 500, 500, launched=at, stream=20)


@pytest.mark.parametrize(
    ("sick", "cause"),
    [
        (loader, "data"),
        (item, "synchronization"),
        (small, "host"),
        (single_precision, "without_tensor_cores"),
        (elementwise, "memory_bound"),
        (pageable, "copies"),
        (exposed, "communication"),
    ],
)
def test_one_cause(sick: Callable[[TraceMaker, int], None], cause: str) -> None:
    verdict = judge(steps(sick))
    assert verdict.is_decided
    assert verdict.causes[0].name == cause


def test_small_kernels_and_garbage_collection_are_named() -> None:
    assert "100 kernels with a median of 3.00 µs" in judge(steps(small)).causes[0].evidence

    def collects(maker: TraceMaker, at: int) -> None:
        maker.work(GEMM, at + 400, 600, launched=at + 395)
        maker.add("python_function", "gc", at + 10, 380)

    cause = judge(steps(collects)).causes[0]
    assert "garbage collection, 380 µs" in cause.evidence
    assert "gc.freeze" in cause.experiment


def healthy(maker: TraceMaker, at: int) -> None:
    maker.work(GEMM, at, 800, launched=at - 100)
    maker.work(ELEMENTWISE, at + 800, 190, launched=at - 90)
    maker.data(at + 100, 300)
    maker.work(NCCL, at + 300, 400, launched=at, stream=20)


def test_a_healthy_step_accuses_nothing() -> None:
    verdict = judge(steps(healthy))
    assert verdict.is_decided
    assert verdict.causes == ()
    assert "No cause found" in verdict.summary


def test_idle_time_without_a_reason_is_undecided() -> None:
    def waits(maker: TraceMaker, at: int) -> None:
        maker.work(GEMM, at, 300, launched=at - 100)
        maker.work(GEMM, at + 700, 300, launched=at - 100)

    verdict = judge(steps(waits))
    assert not verdict.is_decided
    assert "Undecided" in verdict.summary


def test_no_kernels_no_verdict() -> None:
    maker = TraceMaker()
    maker.step(0, 0, 100)
    maker.operator("aten::mm", 0, 50)
    maker.call("cudaLaunchKernel", 10, 5, correlation=1)
    verdict = judge(maker.trace())
    assert not verdict.is_decided
    assert "not recorded" in verdict.summary
    assert verdict.causes == ()


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
