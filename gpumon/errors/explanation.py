"""What a log means: its reading, its known errors, and the short answer."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from gpumon.core.notebook import NotebookTable
from gpumon.errors.answer import LogAnswer, answer_of
from gpumon.errors.cause import Cause, cause_of, in_place
from gpumon.errors.match import Match
from gpumon.errors.reading import LogFailure, LogReading

_MAX_MATCHES: Final = 64


@dataclass(frozen=True, slots=True)
class Explanation(NotebookTable):
    """The errors of a log.

    Attributes:
        matches: The known errors, the cause first, the others in the order of their lines.
        reading: The log; that of the report of a probe is empty.
        root: Why the last run failed; None if it did not, and for the report of a probe.
    """

    matches: tuple[Match, ...]
    answer: LogAnswer
    reading: LogReading
    root: Cause | None = None

    def table_rows(self) -> tuple[LogAnswer, ...]:
        """The answer."""
        return (self.answer,)

    def table_title(self) -> str:
        """How the run ended."""
        return self.answer.headline

    @property
    def cause(self) -> Match | None:
        """The known error from which the others follow, or None if the log has none, or the cause is unknown."""
        return next((match for match in self.matches if match.is_cause), None)

    @property
    def unknown(self) -> LogFailure | None:
        """The error that ended the log, if no entry has it."""
        return None if self.root is None or self.root.root.match is not None else self.root.root

    @property
    def is_failure(self) -> bool:
        """Whether the log ends in a failure."""
        return self.answer.is_failure


def explanation_of(reading: LogReading, name: str) -> Explanation:
    """The explanation of a log."""
    cause = cause_of(reading)
    matches = tuple(_matches(reading, cause))[:_MAX_MATCHES]
    return Explanation(matches, answer_of(reading, cause, name), reading, cause)


def _matches(reading: LogReading, cause: Cause | None) -> Iterable[Match]:
    """The known errors, each once: the cause first."""
    by_id: dict[str, list[Match]] = {}
    failed = chain.from_iterable(failure.matches for failure in (*reading.open, *reading.lasting))
    for match in filter(None, (*failed, reading.hang, *(notice.match for notice in reading.notices))):
        by_id.setdefault(match.error.id, []).append(match)
    root = None if cause is None else cause.root.match
    if root is not None:
        yield _counted(root, by_id.pop(root.error.id, [root]), reading)
    firsts = in_place((matches[0] for matches in by_id.values()), reading)
    rest = (_counted(first, matches, reading) for first, matches in zip(firsts, by_id.values(), strict=True))
    yield from sorted(rest, key=lambda match: match.line)


def _counted(first: Match, matches: Iterable[Match], reading: LogReading) -> Match:
    ranks = sorted({match.rank for match in matches if match.rank is not None})
    return replace(first, count=max(1, reading.counts.get(first.error.id, 1)), ranks=tuple(ranks))
