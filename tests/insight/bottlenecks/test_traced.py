"""The verdict on a trace: alone, and together with what was observed of the process."""

from collections.abc import Callable

import pytest

from gpumon.core.step_classes import DATA, GPU_WORK, HOST, LOGGING, SYNC, TENSOR
from gpumon.insight.bottlenecks.slowness_evidence import GpuEvidence, SlownessEvidence, StepAccount, StepShare
from gpumon.insight.bottlenecks.slowness_verdict import SlownessVerdict, judge_run, judge_traces
from gpumon.insight.bottlenecks.traced_account import traced_account, traced_evidence
from gpumon.traces.model import ClassTime, Contribution, Trace, TracedStep
from tests.insight.bottlenecks.makers import part
from tests.traces.maker import ELEMENTWISE, GEMM, NCCL, PAGEABLE, SGEMM, TraceMaker, training


def test_causes_are_ranked_by_what_they_cost() -> None:
    verdict = judge_trace(training().trace())
    assert verdict.is_decided
    assert [cause.name for cause in verdict.causes] == [
        "communication",
        "without_tensor_cores",
        "synchronization",
        "data",
        "copies",
    ]
    first = verdict.causes[0]
    assert (first.seconds, first.bound_seconds, first.share) == pytest.approx((140e-6, 860e-6, 0.14))
    assert "takes 860 µs at best instead of 1.00 ms" in verdict.summary


def judge_trace(trace: Trace) -> SlownessVerdict:
    return judge_traces([trace])[0]


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


def collects(maker: TraceMaker, at: int) -> None:
    maker.work(GEMM, at + 400, 600, launched=at + 395)
    maker.add("python_function", "gc", at + 10, 380)


def exposed(maker: TraceMaker, at: int) -> None:
    maker.work(GEMM, at, 600, launched=at)
    maker.work(NCCL, at + 500, 500, launched=at, stream=20)


SICK: dict[Callable[[TraceMaker, int], None], str] = {
    loader: "main_process", item: "item_per_step", small: "small_kernels", collects: "gc", single_precision: "no_tf32",
    elementwise: "elementwise", pageable: "pageable", exposed: "communication",
}  # fmt: skip


@pytest.mark.parametrize("sick", SICK, ids=SICK.values())
def test_the_same_steps_have_the_same_verdict_through_both_doors(sick: Callable[[TraceMaker, int], None]) -> None:
    """`gpumon trace` knows the trace alone; `gpumon why` also observed these steps, and its samples add nothing."""
    trace = steps(sick)
    step = trace.step_ns / 1e9
    account = StepAccount(step, step, 50, 500, (StepShare(GPU_WORK, step),))

    recorded = judge_trace(trace)
    observed = judge_run(traced_evidence(trace, SlownessEvidence(account, gpu=GpuEvidence("0", utilization_share=0.6))))

    assert recorded.is_decided
    assert recorded.causes[0].kind == SICK[sick]
    assert recorded == observed


def test_small_kernels_and_garbage_collection_are_named() -> None:
    assert "100 kernels with a median of 3.00 µs" in judge_trace(steps(small)).causes[0].evidence
    cause = judge_trace(steps(collects)).causes[0]
    assert cause.evidence.startswith("380 µs of 1.00 ms (38%)")
    assert "gc.freeze" in cause.experiment


def healthy(maker: TraceMaker, at: int) -> None:
    maker.work(GEMM, at, 800, launched=at - 100)
    maker.work(ELEMENTWISE, at + 800, 190, launched=at - 90)
    maker.data(at + 100, 300)
    maker.work(NCCL, at + 300, 400, launched=at, stream=20)


def test_a_healthy_step_accuses_nothing() -> None:
    verdict = judge_trace(steps(healthy))
    assert verdict.is_decided
    assert verdict.causes == ()
    assert verdict.summary == "Healthy: 99% of the step is work of the GPU."


def test_idle_time_without_a_reason_is_undecided() -> None:
    def waits(maker: TraceMaker, at: int) -> None:
        maker.work(GEMM, at, 300, launched=at - 100)
        maker.work(GEMM, at + 700, 300, launched=at - 100)

    verdict = judge_trace(steps(waits))
    assert not verdict.is_decided
    assert "Undecided" in verdict.summary


def test_no_kernels_no_verdict() -> None:
    maker = TraceMaker()
    maker.step(0, 0, 100)
    maker.operator("aten::mm", 0, 50)
    maker.call("cudaLaunchKernel", 10, 5, correlation=1)
    verdict = judge_trace(maker.trace())
    assert not verdict.is_decided
    assert "not recorded" in verdict.summary
    assert verdict.causes == ()


def trace_of(classes: tuple[ClassTime, ...]) -> Trace:
    total = sum(item.time_ns for item in classes)
    steps = (TracedStep("step", 0, total), TracedStep("step", total, 2 * total))
    return Trace(
        "t", 1, 0, 1, "H100", 2 * total, 0, {}, "", steps, 0, classes, (), {}, 40, 3000, (), (), (), (), (), (), (), ()
    )


def test_the_account_of_a_trace_has_the_lines_and_reasons_of_the_samples() -> None:
    """Recording adds 50 ms to a step of 100 ms, of which the host takes 30; in 20 of these, the main thread logs."""
    item = part("total += loss.item()", 0.03, "train.py:10", "item_per_step")
    logging = StepShare(LOGGING, 0.02, top=(part("log.flush()", 0.02, "train.py:12", "disk"),))
    sampled = StepAccount(0.1, 0.1, 50, 500, (logging, StepShare(SYNC, 0.0), StepShare("gpu_work", 0.08)))
    thread = StepAccount(0.1, 0.1, 50, 500, (logging, StepShare(SYNC, 0.03, top=(item,))))
    recorded = trace_of(
        (
            ClassTime(TENSOR, 60_000_000, 0, 0, (Contribution("sm90_xmma_gemm_f32f32_tf32f32", 60_000_000, 4),)),
            ClassTime(SYNC, 10_000_000, 0, 0, (Contribution("aten::item", 10_000_000, 1),)),
            ClassTime(HOST, 80_000_000, 0, 0, (Contribution("Python", 80_000_000, 1),)),
        )
    )

    account = traced_account(sampled, recorded, thread)

    assert sum(share.seconds for share in account.shares) == pytest.approx(0.1)
    assert account.is_traced
    assert account.share_of(TENSOR).seconds == pytest.approx(0.06)
    assert account.share_of(LOGGING).seconds == pytest.approx(0.02)
    assert account.share_of(HOST).seconds == pytest.approx(0.01)
    assert account.share_of(SYNC).seconds == pytest.approx(0.01)
    assert account.share_of(SYNC).top[0].line == "train.py:10"
    evidence = traced_evidence(recorded, SlownessEvidence(sampled, thread_account=thread)).trace
    assert evidence is not None
    assert evidence.tf32_share == pytest.approx(0.4)
    assert evidence.median_kernel_seconds == pytest.approx(3e-6)


@pytest.mark.parametrize(("observed_ms", "traced_ms"), [(60, 40), (50, 50)])
def test_a_longer_wait_for_data_makes_the_work_of_the_gpu_no_longer(observed_ms: int, traced_ms: int) -> None:
    """The traced step took no longer than the observed ones, because its batch came sooner."""
    work = 100 - observed_ms
    sampled = StepAccount(0.1, 0.1, 50, 500, (StepShare(DATA, observed_ms / 1e3), StepShare("gpu_work", work / 1e3)))
    recorded = trace_of((ClassTime(TENSOR, work * 1_000_000, 0, 0), ClassTime(DATA, traced_ms * 1_000_000, 0, 0)))

    account = traced_account(sampled, recorded, sampled)

    assert account.share_of(DATA).seconds == pytest.approx(observed_ms / 1e3)
    assert account.share_of(TENSOR).seconds == pytest.approx(work / 1e3)
