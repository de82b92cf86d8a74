"""Each cause is named where it costs time, and healthy training runs are not accused."""

from dataclasses import replace

import pytest

from gpumon.core.step_classes import (
    ANOMALY,
    CHECKPOINT,
    COLLECTION,
    COMMUNICATION,
    COMPILATION,
    COPIES,
    CORE_WAIT,
    DATA,
    EMPTY_CACHE,
    EVALUATION,
    FORWARD,
    GIL_WAIT,
    GPU_WORK,
    HOST,
    IDLE,
    LABELS,
    LOCKS,
    LOGGING,
    MEMORY,
    PREPARATION,
    PROFILER,
    PROGRAMS,
    PYTHON,
    SIMT,
    SLEEP,
    STATE_COPIES,
    SYNC,
    TENSOR,
)
from gpumon.insight.bottlenecks.cause import Bottleneck
from gpumon.insight.bottlenecks.causes import CAUSES
from gpumon.insight.bottlenecks.overlays import with_waits
from gpumon.insight.bottlenecks.sampled_account import sampled_account
from gpumon.insight.bottlenecks.slowness_evidence import (
    GpuEvidence,
    HostEvidence,
    OperatorUse,
    SlownessEvidence,
    StepAccount,
    StepShare,
    Straggler,
    TraceEvidence,
)
from gpumon.insight.bottlenecks.slowness_verdict import judge_run
from tests.insight.bottlenecks.makers import WORK, evidence, observed, part, sources

GPU = GpuEvidence("0", "H100", utilization_share=0.6, sm_share=0.5, tensor_share=0.2, dram_share=0.2)
CAPPED = GpuEvidence(
    "0",
    utilization_share=0.99,
    clock_share=0.7,
    throttle_reasons=("sw_power_cap",),
    power_limit_watts=700.0,
    tdp_watts=700.0,
)
"""At the power limit of the product, as any GPU with enough work."""
QUIET = HostEvidence(5.0, cpu_count=16, allowed_cores=16, host_cpu_cores=2.0, process_cpu_cores=1.0)


def share(name: str, seconds: float, kind: str = "", text: str = "work()", pause: float = 0.0) -> StepShare:
    return StepShare(name, seconds, pause, (part(text, seconds + pause, kind=kind),))


def busy_host(**values: object) -> HostEvidence:
    return HostEvidence(5.0, cpu_count=16, allowed_cores=16, **values)  # type: ignore[arg-type]


SICK = {
    "few_workers": evidence(
        {DATA: share(DATA, 0.06, "few_workers")}, busy_host(host_cpu_cores=3.0, workers_count=2, workers_cpu_cores=1.9)
    ),
    "main_process": evidence({DATA: share(DATA, 0.04, "main_process")}, QUIET),
    "queue": evidence({DATA: share(DATA, 0.04, "queue")}, QUIET),
    "worker_start": evidence({DATA: share(DATA, 0.03, "worker_start")}, QUIET),
    "gc": evidence({COLLECTION: 0.2}, QUIET),
    "checkpoint": evidence({CHECKPOINT: share(CHECKPOINT, 0.0, pause=0.08)}, QUIET),
    "copies": evidence({STATE_COPIES: 0.3}, QUIET),
    "disk": evidence({LOGGING: share(LOGGING, 0.03, "disk")}, QUIET),
    "subprocess": evidence({PROGRAMS: 0.3}, QUIET),
    "sleep": evidence({SLEEP: 0.3}, QUIET),
    "lock": evidence({LOCKS: 0.3}, QUIET),
    "recompiles": evidence({COMPILATION: share(COMPILATION, 0.0, pause=0.5)}, QUIET),
    "empty_cache": evidence({EMPTY_CACHE: 0.2}, QUIET, GPU),
    "anomaly_mode": evidence({ANOMALY: 0.2}, QUIET),
    "profiler": evidence({PROFILER: 0.2}, QUIET),
    "evaluation": evidence({EVALUATION: 0.5}, QUIET),
    "python": evidence({PYTHON: 0.4}, QUIET),
    "gil": evidence({GIL_WAIT: 0.3}, busy_host(python_threads={"decoder": "feed.py:8"})),
    "quota": evidence({CORE_WAIT: 0.3}, busy_host(quota_throttled_share=0.5)),
    "cpu_contention": evidence(
        {CORE_WAIT: 0.4}, busy_host(host_cpu_cores=16.0, process_cpu_cores=1.0, busiest_others=(("other", 15.0),))
    ),
    "threads": evidence(
        {CORE_WAIT: 0.4}, busy_host(host_cpu_cores=16.0, process_cpu_cores=15.8, busy_threads_count=63)
    ),
    "tiny_batch": evidence(
        {}, QUIET, account=StepAccount(0.001, 0.001, 500, 500, (StepShare("forward", 0.001),), overhead_share=0.2)
    ),
    "item_per_step": evidence({SYNC: share(SYNC, 0.02, "item_per_step", "loss.item()")}, QUIET, GPU),
    "small_kernels": evidence({HOST: 0.5}, QUIET, GPU, TraceEvidence(kernels_count=900, median_kernel_seconds=3e-6)),
    "cudnn_benchmark": evidence(
        {HOST: 0.8}, QUIET, GPU, TraceEvidence(median_kernel_seconds=3e-6, calls={"aten::cudnn_convolution": 0.06})
    ),
    "host": evidence({HOST: 0.3}, QUIET, GPU, TraceEvidence(kernels_count=90, median_kernel_seconds=3e-4)),
    "pageable": evidence(
        {COPIES: 0.2}, QUIET, GPU, TraceEvidence(pageable_copy_seconds=0.02, copied_bytes=1 << 28, copies_count=2)
    ),
    "no_overlap": evidence({COPIES: 0.2}, QUIET, GPU, TraceEvidence(copied_bytes=1 << 28, copies_count=2)),
    "no_tf32": evidence({SIMT: 0.7}, QUIET, GPU, TraceEvidence()),
    "no_bf16": evidence({TENSOR: 0.9}, QUIET, GPU, TraceEvidence(tf32_share=0.8)),
    "elementwise": evidence({MEMORY: 0.6}, QUIET, GPU, TraceEvidence(elementwise_seconds=0.055)),
    "tiny_copies": evidence(
        {COPIES: 0.03, SYNC: 0.25, HOST: 0.4},
        QUIET,
        GPU,
        TraceEvidence(sent_bytes=2400, sent_count=600, median_kernel_seconds=1e-6, calls={"aten::to": 0.03}),
    ),
    "gpu_shared": evidence(
        {}, QUIET, GpuEvidence("0", utilization_share=0.99, others=(("other", 0.5),), own_sm_share=0.4)
    ),
    "clocks": evidence(
        {}, QUIET, GpuEvidence("0", utilization_share=0.99, clock_share=0.5, throttle_reasons=("hw_thermal_slowdown",))
    ),
    "allocator_retries": evidence(
        {SYNC: 0.3}, QUIET, GpuEvidence("0", utilization_share=0.6, retries_count=40, memory_used_share=0.99)
    ),
    "communication": evidence({COMMUNICATION: 0.4}, QUIET, world_size=2, rank=0),
    "unused_parameters": evidence(
        {COMMUNICATION: 0.4}, QUIET, world_size=2, hints={"find_unused_parameters": "train.py:7"}
    ),
    "small_buckets": evidence({COMMUNICATION: 0.4}, QUIET, world_size=2, hints={"bucket_cap_mb": "train.py:7"}),
    "data_parallel": evidence({COMMUNICATION: share(COMMUNICATION, 0.04, "data_parallel")}, QUIET, GPU),
    "debugging": evidence({HOST: 0.5}, busy_host(settings={"CUDA_LAUNCH_BLOCKING": "1"}), GPU),
    "straggler": evidence(
        {COMMUNICATION: 0.4}, QUIET, world_size=2, rank=0, straggler=Straggler(1, 0.04, "it has more data")
    ),
    "swapping": evidence({}, busy_host(major_faults_count=5000, disk_wait_share=0.6)),
}


@pytest.mark.parametrize("kind", SICK)
def test_the_cause_is_named_first(kind: str) -> None:
    verdict = judge_run(SICK[kind])

    assert verdict.is_decided
    first = verdict.causes[0]
    assert first.kind == kind
    assert first.bound_seconds < first.base_seconds
    assert first.seconds / first.base_seconds == pytest.approx(first.share)
    assert first.evidence.endswith(".")
    assert first.experiment.endswith(".")


def test_every_cause_has_a_case() -> None:
    assert {rule.kind for rule in CAUSES} == set(SICK)
    assert all(rule.class_name in LABELS for rule in CAUSES)


HEALTHY = {
    "on a CPU": evidence({"forward": 0.35, "backward": 0.55, "optimizer": 0.1}, QUIET),
    "a little of everything": evidence(
        {
            DATA: share(DATA, 0.003, "few_workers"),
            COLLECTION: 0.01,
            LOGGING: 0.02,
            PYTHON: 0.08,
            CORE_WAIT: 0.05,
            PREPARATION: 0.03,
        },
        QUIET,
    ),
    "an evaluation now and then": evidence({EVALUATION: share(EVALUATION, 0.0, pause=0.3)}, QUIET),
    "settings without effect": evidence(
        {}, busy_host(settings={"CUDA_LAUNCH_BLOCKING": "0", "TORCH_DISTRIBUTED_DEBUG": "INFO"}), GPU
    ),
    "a busy GPU": evidence({GPU_WORK: 0.97, HOST: 0.02, SYNC: 0.01}, QUIET, GPU),
    "a GPU at its power limit": evidence({}, QUIET, CAPPED),
    "bf16 on tensor cores": evidence(
        {TENSOR: 0.8, MEMORY: 0.15, HOST: 0.05},
        QUIET,
        GPU,
        TraceEvidence(kernels_count=500, median_kernel_seconds=5e-5),
    ),
    "convolutions with normalization": evidence(
        {TENSOR: 0.55, MEMORY: 0.45}, QUIET, GPU, TraceEvidence(elementwise_seconds=0.03)
    ),
    "communication that overlaps": evidence({COMMUNICATION: 0.05}, QUIET, world_size=8),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_training_run_is_not_accused(name: str) -> None:
    verdict = judge_run(HEALTHY[name])

    assert verdict.is_decided
    assert verdict.causes == ()
    assert verdict.summary.startswith(("Healthy: ", "No cause found"))


def test_a_power_limit_that_somebody_lowered_is_a_cause() -> None:
    (cause,) = judge_run(evidence({}, QUIET, replace(CAPPED, power_limit_watts=400.0))).causes
    assert cause.kind == "clocks"
    assert "at a power limit of 400 W instead of 700 W" in cause.evidence


def test_workers_that_wait_for_a_core_are_no_few_workers() -> None:
    data = {DATA: share(DATA, 0.04, "few_workers")}
    run = evidence(
        data, busy_host(host_cpu_cores=16.0, process_cpu_cores=2.0, workers_count=2, workers_queued_share=0.9)
    )

    verdict = judge_run(run)

    assert [cause.kind for cause in verdict.causes] == ["cpu_contention"]
    assert verdict.causes[0].seconds == pytest.approx(0.036)


def test_causes_are_ranked_by_their_cost() -> None:
    verdict = judge_run(evidence({SLEEP: 0.2, LOGGING: share(LOGGING, 0.03), COLLECTION: 0.1}, QUIET))

    assert [cause.kind for cause in verdict.causes] == ["disk", "sleep", "gc"]


def is_within(cause: Bottleneck, seconds: float) -> bool:
    return cause.bound_range is not None and cause.bound_range[0] <= seconds <= cause.bound_range[1]


def test_settings_of_ddp_come_before_the_launches_that_they_cause() -> None:
    search = "torch.distributed.ddp.reducer::search_unused_parameters"
    hook = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    launches = TraceEvidence(
        kernels_count=900,
        median_kernel_seconds=1e-6,
        operators={search: OperatorUse(1e-4, 1, 1e-4), hook: OperatorUse(0.04, 500, 0.025)},
    )
    unused = judge_run(evidence({HOST: 0.8, COMMUNICATION: 0.01}, QUIET, GPU, launches, world_size=2, rank=0))
    assert [cause.kind for cause in unused.causes] == ["unused_parameters", "small_kernels"]
    assert is_within(unused.causes[0], 0.1 - 0.0251)

    collectives = replace(launches, operators={"c10d::allreduce_": OperatorUse(0.02, 62, 1e-3)})
    hints = {"bucket_cap_mb": "train.py:7"}
    run = evidence({HOST: 0.8, COMMUNICATION: 0.04}, QUIET, GPU, collectives, world_size=2, rank=0, hints=hints)
    assert [cause.kind for cause in judge_run(run).causes] == ["small_buckets", "small_kernels"]
    assert judge_run(run).causes[0].line == "train.py:7"
    assert is_within(judge_run(run).causes[0], 0.1 - 0.024)


def test_the_bound_of_a_shared_gpu_is_the_part_of_the_others() -> None:
    part_of_all = 0.5 / 0.9
    bound = 0.1 * (1 - (0.5 + part_of_all) / 2)
    assert judge_run(SICK["gpu_shared"]).causes[0].bound_seconds == pytest.approx(bound)


def test_waits_for_a_core_in_long_steps_are_part_of_the_cost() -> None:
    """The main thread waits in half of the time, and most of that in some steps."""
    steps = ((0.1, 0.0, 0.0),) * 12 + ((0.4, 0.0, 0.0),) * 8
    observation = observed(WORK, steps, cpu_seconds=2.2)
    host = busy_host(host_cpu_cores=16.0, process_cpu_cores=0.5, main_run_queue_share=0.5)

    account = with_waits(
        sampled_account(observation, sources({}), has_gpu=False), observation, host, None, has_gpu=False
    )

    waiting = account.share_of(CORE_WAIT)
    assert waiting.seconds == pytest.approx(0.05)
    assert waiting.cost_seconds == pytest.approx(0.11)
    assert sum(share.seconds for share in account.shares) == pytest.approx(0.1)


def test_the_bound_of_a_cause_in_some_steps_is_the_median_step() -> None:
    cause = judge_run(SICK["checkpoint"]).causes[0]

    assert cause.bound_seconds == pytest.approx(0.1)
    assert cause.base_seconds == pytest.approx(0.18)
    assert cause.seconds == pytest.approx(0.08)


def test_the_program_comes_before_the_load_of_the_host() -> None:
    """Half of the step is in the loader, with its waits for a core; the loader can be cured here."""
    loader = StepShare(DATA, 0.02, 0.0, (part("work()", 0.02, kind="main_process"),), queued_seconds=0.03)
    run = evidence({DATA: loader, CORE_WAIT: 0.6}, busy_host(host_cpu_cores=16.0, process_cpu_cores=1.0))

    assert [cause.kind for cause in judge_run(run).causes] == ["main_process", "cpu_contention"]


@pytest.mark.parametrize(
    "account",
    [StepAccount(0.1, 0.1, 2, 500, (StepShare(SLEEP, 0.1),)), StepAccount(0.1, 0.1, 50, 10, (StepShare(SLEEP, 0.1),))],
)
def test_few_steps_or_samples_are_undecided(account: StepAccount) -> None:
    verdict = judge_run(evidence({}, QUIET, account=account))

    assert not verdict.is_decided
    assert verdict.summary.startswith("Undecided")


@pytest.mark.parametrize("run", [evidence({IDLE: 0.5}, QUIET, GPU), evidence({SYNC: 0.5}, QUIET, GpuEvidence("0"))])
def test_time_without_a_reason_is_undecided(run: SlownessEvidence) -> None:
    verdict = judge_run(run)

    assert not verdict.is_decided


def test_a_range_is_said_where_a_cure_removes_the_time_and_is_at_most_20_percent_wide() -> None:
    """The longest path without the waits decides; limits too far apart give none."""
    trace = TraceEvidence(without={SYNC: 0.045, f"least {SYNC}": 0.055})
    cause = judge_run(evidence({SYNC: 0.7}, QUIET, GPU, trace)).causes[0]
    assert cause.kind == "item_per_step"
    assert cause.bound_range is not None
    low, high = cause.bound_range
    assert low < 0.045 < 0.055 < high <= 1.501 * low

    unclear = TraceEvidence(without={SYNC: 0.03, f"least {SYNC}": 0.06})
    cause = judge_run(evidence({SYNC: 0.7}, QUIET, GPU, unclear)).causes[0]
    assert (cause.bound_range, cause.bound_seconds, cause.bound_text) == (None, 0.03, "30.0 ms at best")


def test_few_samples_that_are_all_work_and_short_steps_are_decided() -> None:
    few = StepAccount(0.01, 0.01, 30, 25, (StepShare(FORWARD, 0.0096), StepShare(LOGGING, 0.0004)))
    assert judge_run(evidence({}, account=few)).summary == "Healthy: 96% of the step is compute."
    short = StepAccount(1e-3, 1e-3, 5000, 200, (StepShare(GPU_WORK, 4e-4), StepShare(IDLE, 6e-4)))
    verdict = judge_run(evidence({}, gpu=replace(GPU, utilization_share=0.4), account=short))
    assert verdict.is_decided
    assert verdict.summary.startswith("Host-bound because the steps are short: 1.00 ms.")
    gaps = TraceEvidence(queued_seconds=0.03)
    assert judge_run(evidence({IDLE: 0.3}, QUIET, GPU, gaps)).is_decided
    assert not judge_run(evidence({IDLE: 0.3}, QUIET, GPU, TraceEvidence())).is_decided


def test_another_process_that_fills_the_queue_also_leaves_the_gil() -> None:
    data = StepShare(DATA, 0.04, top=(part("queue.get()", 0.04, kind="queue"),))
    host = busy_host(python_threads={"decoder": "train.py:9"})
    causes = {cause.kind: cause for cause in judge_run(evidence({DATA: data, GIL_WAIT: 0.2}, host)).causes}
    assert causes["queue"].bound_seconds == pytest.approx(0.04)
    assert is_within(causes["gil"], 0.04)
