"""The policy of a polled value: when it is due, and how long a stale value stays."""

from collections.abc import Callable

import pytest

from gpumon.collect.nvml import DeviceLostError, ReadingError
from gpumon.collect.schedule import MAX_STALE_POLLS, RETRY_SECONDS, Period, PolledValue
from gpumon.core.problems import Problem, ProblemCode

UNKNOWN = Problem(ProblemCode.UNKNOWN, "NVML returned: unknown.")
NOT_SUPPORTED = Problem(ProblemCode.NOT_SUPPORTED, "Not supported.")
INVALID = Problem(ProblemCode.INVALID_VALUE, "Not valid.")


def failing(problem: Problem) -> Callable[[], int]:
    def read() -> int:
        raise ReadingError(problem)

    return read


@pytest.mark.parametrize(("period", "due"), [(Period.EVERY_SWEEP, 5), (Period.TEN_SECONDS, 15)])
def test_a_value_is_read_when_it_is_due(period: Period, due: float) -> None:
    polled = PolledValue[int](period)
    assert polled.poll(5, lambda: 1) == 1
    assert (polled.due, polled.problem) == (due, None)
    assert polled.poll(14, lambda: 2) == (2 if due == 5 else 1)
    assert polled.poll(15, lambda: 3) == 3


def test_a_value_that_does_not_change_is_read_once_and_retried_after_a_failure() -> None:
    polled = PolledValue[int](Period.ONCE)
    assert polled.poll(0, failing(UNKNOWN)) is None
    assert polled.poll(9, lambda: 1) is None
    assert polled.poll(10, lambda: 1) == 1
    assert polled.poll(1e9, lambda: 2) == 1


def test_the_first_period_may_differ() -> None:
    polled = PolledValue[int](Period.TEN_SECONDS, first_period=2)
    polled.poll(0, lambda: 1)
    assert polled.due == 2
    polled.poll(2, lambda: 1)
    assert polled.due == 12


def test_after_a_failure_without_a_cause_the_last_value_stays_for_a_few_polls() -> None:
    polled = PolledValue[int](Period.EVERY_SWEEP)
    polled.poll(0, lambda: 1)
    for now in range(1, MAX_STALE_POLLS + 1):
        assert polled.poll(now, failing(UNKNOWN)) == 1
        assert polled.problem is not None
        assert polled.problem.code is ProblemCode.STALE
        assert polled.problem.reason.startswith(UNKNOWN.reason)
    assert polled.poll(MAX_STALE_POLLS + 1, failing(UNKNOWN)) is None
    assert polled.problem == UNKNOWN
    assert polled.poll(MAX_STALE_POLLS + 2, lambda: 2) == 2
    assert polled.poll(MAX_STALE_POLLS + 3, failing(UNKNOWN)) == 2


@pytest.mark.parametrize("problem", [NOT_SUPPORTED, INVALID])
def test_a_failure_with_a_cause_removes_the_value_at_once(problem: Problem) -> None:
    polled = PolledValue[int](Period.EVERY_SWEEP)
    polled.poll(0, lambda: 1)
    assert polled.poll(1, failing(problem)) is None
    assert polled.problem == problem
    assert polled.due == (1 + RETRY_SECONDS if problem is NOT_SUPPORTED else 1)


def test_without_a_last_value_there_is_nothing_stale() -> None:
    polled = PolledValue[int](Period.EVERY_SWEEP)
    assert polled.poll(0, failing(UNKNOWN)) is None
    assert polled.problem == UNKNOWN


def test_stale_values_can_be_switched_off() -> None:
    polled = PolledValue[int](Period.EVERY_SWEEP, max_stale_polls=0)
    polled.poll(0, lambda: 1)
    assert polled.poll(1, failing(UNKNOWN)) is None


def test_a_call_that_raises_anything_else_leaves_the_value_due() -> None:
    def lost() -> int:
        raise DeviceLostError(UNKNOWN)

    polled = PolledValue[int](Period.TEN_SECONDS)
    polled.poll(0, lambda: 1)
    with pytest.raises(DeviceLostError):
        polled.poll(10, lost)
    assert (polled.value, polled.due) == (1, 10)
