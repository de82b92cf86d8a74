"""A reading that fails once or twice shows its last value, marked: a driver that stumbles makes no row flicker."""

from functools import lru_cache
from typing import Final

from gpumon.core.problems import Problem, ProblemCode

MOST_FAILURES: Final = 2
"""So often in a row a reading may fail until its last value is not shown any more."""


class Patience:
    """With one reading, or with several that come from one call."""

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures = 0

    def succeeded(self) -> None:
        """Notes that there is a new value."""
        self._failures = 0

    def excuse(self, problem: Problem) -> Problem | None:
        """What to say beside the last value after a failure, or None when it is to be shown no more.

        Args:
            problem: The failure. Only one that the driver gives no reason for is taken for a stumble.
        """
        if problem.code is not ProblemCode.UNKNOWN or self._failures >= MOST_FAILURES:
            self._failures = MOST_FAILURES
            return None
        self._failures += 1
        return _stale(problem.reason)


@lru_cache(maxsize=64)
def _stale(reason: str) -> Problem:
    return Problem(ProblemCode.STALE, f"{reason} This is the last value before.")
