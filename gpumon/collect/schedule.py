"""When each value of a device is read again, and what stands in for a value whose reading failed.

Costs of one reading, measured on H200 under driver 580: most values take 1 to 20 microseconds and are read in every
sweep. The process lists take 30 microseconds, but 600 on a busy host, and are read about once a second, or every two
seconds while no screen shows them. Values that take up to 350 microseconds, with spikes, are read every ten seconds.
Values that take milliseconds and do not change while the driver is loaded are read once.
"""

from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import Final, Generic, TypeVar

from gpumon.collect.nvml import ReadingError
from gpumon.core.problems import Problem, ProblemCode

T = TypeVar("T")

NEXT_FRAME: Final = Problem(ProblemCode.NOT_READ, "gpumon reads this value in the next frame.")
NEEDS_TWO_SAMPLES: Final = Problem(ProblemCode.NOT_READ, "Needs two samples.")

RETRY_SECONDS: Final = 300.0
"""Time until gpumon repeats a query that the GPU, the driver or a permission does not allow."""

MAX_STALE_POLLS: Final = 2
"""Number of consecutive failures during which the last value stays visible, marked as stale."""


class Period(float, Enum):
    """Seconds between two readings of a value."""

    EVERY_SWEEP = 0.0
    ONE_SECOND = 0.9
    """A little less, so that a sweep that starts early still counts."""
    TWO_SECONDS = 1.9
    TEN_SECONDS = 10.0
    ONE_MINUTE = 60.0
    ONCE = float("inf")


class PolledValue(Generic[T]):
    """The result of one call that is repeated: when the call is due, its last value, and why a value is missing.

    A failure without a known cause (`ProblemCode.UNKNOWN`) keeps the last value for a few polls and marks the value as
    stale, so that a driver that fails for a moment does not make a row flicker. Any other failure removes the value.

    Args:
        period: Time between two polls.
        first_period: Seconds between the first and the second poll, if they differ from ``period``.
        max_stale_polls: Number of consecutive failures that keep the last value.
        retry_seconds: Time until a query that the GPU or a permission does not allow is repeated. A call that the
            driver lacks is repeated after `RETRY_SECONDS`.

    Attributes:
        value: The last value, or None.
        problem: Why there is no value, or why the value is stale; None if the value is current.
        due: Monotonic time of the next poll. It is set after the call and not before, so that a value whose call hung
            is still due when its device responds again.
    """

    __slots__ = (
        "_failures",
        "_max_stale_polls",
        "_next_period",
        "_period",
        "_retry_seconds",
        "due",
        "problem",
        "value",
    )

    def __init__(
        self,
        period: Period,
        *,
        first_period: float | None = None,
        max_stale_polls: int = MAX_STALE_POLLS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self.value: T | None = None
        self.problem: Problem | None = None
        self.due = float("-inf")
        self._period = period.value
        self._next_period = self._period if first_period is None else first_period
        self._max_stale_polls = max_stale_polls
        self._retry_seconds = retry_seconds
        self._failures = 0

    def poll(self, now: float, read: Callable[[], T]) -> T | None:
        """Call ``read`` if the value is due at ``now`` (monotonic seconds); return `value`.

        Raises:
            DeviceLostError: The device is gone.
            DriverGoneError: The driver is gone.
        """
        if now >= self.due:
            try:
                value = read()
            except ReadingError as error:
                self.fail(error.problem, now)
            else:
                self.succeed(value, now)
        return self.value

    def succeed(self, value: T, now: float) -> None:
        """Record the value of a call that succeeded."""
        self.value = value
        self.problem = None
        self._failures = 0
        self.due = now + self._next_period
        self._next_period = self._period

    def fail(self, problem: Problem, now: float) -> None:
        """Record a call that failed; remove the value unless it may stay as a stale one."""
        if problem.code is ProblemCode.UNKNOWN and self._failures < self._max_stale_polls:
            self._failures += 1
            self.problem = problem if self.value is None else _stale(problem.reason)
        else:
            self._failures = self._max_stale_polls
            self.value = None
            self.problem = problem
        if problem.code is ProblemCode.DRIVER_TOO_OLD:
            pause = RETRY_SECONDS
        elif problem.code in {ProblemCode.NOT_SUPPORTED, ProblemCode.NO_PERMISSION}:
            pause = self._retry_seconds
        elif self._period == Period.ONCE:
            pause = Period.TEN_SECONDS.value
        else:
            pause = self._next_period
        self._next_period = self._period
        self.due = now + pause


@lru_cache(maxsize=64)
def _stale(reason: str) -> Problem:
    return Problem(ProblemCode.STALE, f"{reason} The last value is shown.")
