"""Which of several errors came first, and which only followed from it."""

from collections.abc import Sequence
from typing import Final

from gpumon.diagnosis.explanation import Match
from gpumon.diagnosis.prefixes import Clock

_DEVICE_ASSERT: Final = "device-assert"
_MISLEADING: Final = frozenset(
    {
        "cublas-exec",
        "cublas-init",
        "cuda-unknown",
        "cudnn-engine",
        "cudnn-init",
        "cufft",
        "illegal-address",
        "init-error-3",
        "launch-failure",
        "nccl-cuda",
        "pin-memory",
    }
)
"""What other calls say after a device assert, whose context is dead; it may reach the log before the assert does."""
_DAY: Final = 24 * 3600.0
_PERIODS: Final = {Clock.TIME_OF_DAY: _DAY, Clock.WITHOUT_YEAR: 366 * _DAY}
"""After how many seconds a clock begins anew: midnight or a new year may lie between two errors."""


def first_cause(matches: Sequence[Match]) -> Match:
    """The error that the others follow from.

    An echo never is if anything else was found, and a warning only if nothing failed.

    Args:
        matches: What was found, at least one.
    """
    grade = min(_grade(match) for match in matches)
    candidates = sorted((match for match in matches if _grade(match) == grade), key=lambda match: match.line)
    found = candidates[0]
    for other in candidates[1:]:
        if _is_earlier(other, found):
            found = other
    if found.error.id in _MISLEADING:
        return next((each for each in matches if each.error.id == _DEVICE_ASSERT and _share_rank(each, found)), found)
    return found


def _grade(match: Match) -> tuple[bool, bool]:
    return (match.error.is_echo, match.is_warning)


def _is_earlier(match: Match, than: Match) -> bool:
    """Whether the log's own times say so; without any the order of the lines holds."""
    if match.moment is None or than.moment is None or match.moment.clock is not than.moment.clock:
        return False
    seconds = than.moment.seconds - match.moment.seconds
    period = _PERIODS.get(match.moment.clock)
    return seconds > 0 if period is None else 0 < seconds % period < period / 2


def _share_rank(one: Match, other: Match) -> bool:
    return not one.ranks or not other.ranks or not set(one.ranks).isdisjoint(other.ranks)
