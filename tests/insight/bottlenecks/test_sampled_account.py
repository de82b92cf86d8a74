"""The account of the median step adds up, and knows pauses, waits and what the GPU does."""

import pytest

from gpumon.core.step_classes import (
    BACKWARD,
    CHECKPOINT,
    COLLECTION,
    COMMUNICATION,
    CORE_WAIT,
    DATA,
    FORWARD,
    GIL_WAIT,
    GPU_WORK,
    HOST,
    IDLE,
    OPTIMIZER,
    SLEEP,
    SYNC,
)
from gpumon.insight.bottlenecks.overlays import with_gpu, with_waits
from gpumon.insight.bottlenecks.sampled_account import sampled_account
from gpumon.insight.bottlenecks.slowness_evidence import GpuEvidence, HostEvidence, StepAccount
from tests.insight.bottlenecks.makers import DATA_STACK, MODULE, WORK, observed, sources, stack

SAVE = stack(("torch/serialization.py", "save"))
ITEM = sources({10: "total += loss.item()"})
HOST_16 = HostEvidence(2.0, cpu_count=16)


def total(account: StepAccount) -> float:
    return sum(share.seconds for share in account.shares)


def test_the_samples_divide_the_step() -> None:
    account = sampled_account(observed(WORK), sources({}), has_gpu=False)

    assert total(account) == pytest.approx(0.1)
    assert account.share_of(FORWARD).seconds == pytest.approx(0.04)
    assert account.share_of(BACKWARD).seconds == pytest.approx(0.05)
    assert account.share_of(OPTIMIZER).seconds == pytest.approx(0.01)
    assert account.share_of(FORWARD).top[0].line == "train.py:10"


def test_the_wait_for_data_and_the_collection_are_as_measured() -> None:
    """The samples show 50 % in the loader; 60 % were measured."""
    stacks = ((DATA_STACK, 100), *WORK)

    account = sampled_account(observed(stacks, ((0.1, 0.06, 0.01),) * 20), sources({}), has_gpu=False)

    assert total(account) == pytest.approx(0.1)
    assert account.share_of(DATA).seconds == pytest.approx(0.06)
    assert account.share_of(DATA).top[0].kind == "few_workers"
    assert account.share_of(COLLECTION).seconds == pytest.approx(0.01)
    assert account.share_of(FORWARD).seconds == pytest.approx(0.4 * 0.03)


def test_a_loader_that_the_probe_does_not_see_is_sampled() -> None:
    stacks = ((DATA_STACK, 100), *WORK)

    account = sampled_account(observed(stacks), sources({}), has_gpu=False)

    assert account.share_of(DATA).seconds == pytest.approx(0.05)
    assert total(account) == pytest.approx(0.1)


def test_a_checkpoint_in_some_steps_is_a_pause() -> None:
    """Every fifth step takes 0.5 s longer: half of the time of 5 steps, and nothing of the median one."""
    steps = ((0.1, 0.0, 0.0),) * 4 + ((0.6, 0.0, 0.0),)

    account = sampled_account(observed(((SAVE, 100), *WORK), steps * 4), sources({}), has_gpu=False)

    assert account.step_seconds == pytest.approx(0.1)
    assert total(account) == pytest.approx(0.1)
    assert account.share_of(CHECKPOINT).seconds == pytest.approx(0.0, abs=1e-9)
    assert account.share_of(CHECKPOINT).pause_seconds == pytest.approx(0.1)


def test_steps_of_different_lengths_have_no_pause() -> None:
    steps = tuple((0.05 + 0.01 * (number % 11), 0.0, 0.0) for number in range(44))

    account = sampled_account(observed(WORK, steps), sources({}), has_gpu=False)

    assert total(account) == pytest.approx(account.step_seconds)
    assert not any(share.pause_seconds for share in account.shares)


def test_without_samples_the_rest_is_idle() -> None:
    account = sampled_account(observed(()), sources({}), has_gpu=False)

    assert account.share_of(IDLE).seconds == pytest.approx(0.1)


def test_the_wait_for_a_core_comes_from_classes_that_compute() -> None:
    sleep = stack(main=None), 0
    observation = observed((*WORK, sleep))
    account = sampled_account(observation, sources({}), has_gpu=False)

    account = with_waits(account, observation, HostEvidence(2.0, main_run_queue_share=0.3), None, has_gpu=False)

    assert total(account) == pytest.approx(0.1)
    assert account.share_of(CORE_WAIT).seconds == pytest.approx(0.03)
    assert account.share_of(FORWARD).seconds == pytest.approx(0.7 * 0.04)
    assert account.share_of(FORWARD).median_seconds == pytest.approx(0.04)


def test_a_blocked_thread_does_not_wait_for_a_core() -> None:
    observation = observed(((stack(), 90), (WORK[0][0], 10)))
    account = sampled_account(observation, sources({10: "time.sleep(0.1)"}), has_gpu=False)

    account = with_waits(account, observation, HostEvidence(2.0, main_run_queue_share=0.5), None, has_gpu=False)

    assert account.share_of(SLEEP).seconds == pytest.approx(0.09)
    assert account.share_of(CORE_WAIT).seconds == pytest.approx(0.01)


def test_time_without_a_core_is_the_gil_where_another_python_thread_works() -> None:
    observation = observed(WORK, cpu_seconds=1.2)
    account = sampled_account(observation, sources({}), has_gpu=False)
    host = HostEvidence(2.0, python_threads={"decoder": "feed.py:8"})

    account = with_waits(account, observation, host, None, has_gpu=False)

    assert account.share_of(GIL_WAIT).seconds == pytest.approx(0.04)
    assert account.share_of(GIL_WAIT).top[0].line == "feed.py:8"
    assert total(account) == pytest.approx(0.1)


def test_time_without_a_core_in_the_backward_pass_of_a_job_is_communication() -> None:
    observation = observed(WORK, cpu_seconds=1.2)
    account = sampled_account(observation, sources({}), has_gpu=False)

    alone = with_waits(account, observation, HOST_16, None, has_gpu=False)
    account = with_waits(account, observation, HOST_16, 2, has_gpu=False)

    assert not alone.share_of(COMMUNICATION).seconds
    assert account.share_of(COMMUNICATION).seconds == pytest.approx(0.04)
    assert total(account) == pytest.approx(0.1)


def test_a_wait_for_a_busy_gpu_is_its_work() -> None:
    account = sampled_account(observed(((stack(), 80), *WORK)), ITEM, has_gpu=True)

    account = with_gpu(account, GpuEvidence(utilization_share=0.98))

    assert account.share_of(GPU_WORK).seconds == pytest.approx(0.098)
    assert account.share_of(SYNC).seconds < 0.002
    assert total(account) == pytest.approx(0.1)


def test_the_idle_time_of_a_gpu_belongs_to_launches_and_waits_in_proportion() -> None:
    account = sampled_account(observed(((stack(), 100), *WORK)), ITEM, has_gpu=True)

    account = with_gpu(account, GpuEvidence(utilization_share=0.3))

    assert account.share_of(HOST).seconds == pytest.approx(0.035)
    assert account.share_of(SYNC).seconds == pytest.approx(0.035)
    assert total(account) == pytest.approx(0.1)


def test_a_wait_for_data_costs_no_more_than_the_gpu_is_idle() -> None:
    observation = observed(((DATA_STACK, 100), *WORK), ((0.1, 0.05, 0.0),) * 20)
    account = sampled_account(observation, sources({}), has_gpu=True)

    account = with_gpu(account, GpuEvidence(utilization_share=0.8))

    assert account.share_of(DATA).seconds == pytest.approx(0.02)
    assert total(account) == pytest.approx(0.1)


def test_python_around_operators_is_counted() -> None:
    around = stack(("torch/nn/modules/container.py", "forward"), MODULE)

    account = sampled_account(observed((*WORK, (around, 25))), sources({}), has_gpu=False)

    assert account.overhead_share == pytest.approx(0.2)
