"""Decides which of several errors came first, and which ones follow from it."""

from collections.abc import Sequence
from typing import Final

from gpumon.diagnosis.explanation import Match
from gpumon.errors.conditions import condition
from gpumon.errors.prefixes import ClockKind
from gpumon.errors.rank import case_of

_DAY_SECONDS: Final = 24 * 3600.0
_PERIOD_SECONDS: Final = {ClockKind.TIME_OF_DAY: _DAY_SECONDS, ClockKind.WITHOUT_YEAR: 366 * _DAY_SECONDS}
"""The period after which a clock restarts: two errors may be on both sides of midnight or of a new year."""


def first_cause(matches: Sequence[Match]) -> Match:
    """The error from which the others follow.

    An echo is chosen only if every match is an echo, and a warning only if no error occurred.

    Args:
        matches: The known errors of a log, at least one.
    """
    independent = [match for match in matches if not any(_leads_to(other, match) for other in matches)] or matches
    grade = min(_grade(match) for match in independent)
    candidates = sorted((match for match in independent if _grade(match) == grade), key=lambda match: match.line)
    first = candidates[0]
    for other in candidates[1:]:
        if _is_earlier(other, first):
            first = other
    return first


def _leads_to(match: Match, other: Match) -> bool:
    """Whether an error is a consequence of another one of the same rank, as its entry says."""
    conditions = [when for error_id, when in other.error.follows if error_id == match.error.id]
    if not conditions or not _share_rank(match, other):
        return False
    return "" in conditions or any(
        condition(when)(case_of(other.error, other.text, other.values)) for when in conditions
    )


def _grade(match: Match) -> tuple[bool, bool, bool]:
    """An echo, a warning, and a line of the code that would raise an error are causes only if nothing else is."""
    return (match.error.is_echo, match.is_warning, match.is_code)


def _is_earlier(match: Match, other: Match) -> bool:
    """Whether the timestamps prove it; without comparable timestamps the order of the lines decides."""
    if match.timestamp is None or other.timestamp is None or match.timestamp.clock is not other.timestamp.clock:
        return False
    seconds = other.timestamp.seconds - match.timestamp.seconds
    period = _PERIOD_SECONDS.get(match.timestamp.clock)
    return seconds > 0 if period is None else 0 < seconds % period < period / 2


def _share_rank(one: Match, other: Match) -> bool:
    return not one.ranks or not other.ranks or not set(one.ranks).isdisjoint(other.ranks)
