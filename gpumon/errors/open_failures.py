"""Failures that a run has not survived so far, and what is printed behind them."""

from collections import Counter
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import inf
from typing import Final

from gpumon.errors import signs
from gpumon.errors.entry import ContextState
from gpumon.errors.failures import is_lasting
from gpumon.errors.raised import Link, Raised
from gpumon.errors.reading import FailureKind, LogFailure, Notice
from gpumon.errors.signs import has_sign

_MAX_SURVIVED: Final = 256
_BUFFERED_CHARACTERS: Final = 10_000
"""What a program has printed may reach a log behind its traceback: its buffer of 8 KiB is written when it ends."""
_BUFFERED_BY_RANKS: Final = 80_000
_MAX_ORDINARY: Final = {FailureKind.LOGGED: 40, FailureKind.REPORTED: 40, FailureKind.KNOWN: 400}
"""Ordinary lines after which an error that is only a line of text was not the end."""
_MAX_BEHIND_CAUGHT: Final = 40
"""Lines behind an exception that a program caught and printed, after which it goes on whatever they say."""
_INFORMATION_WEIGHT: Final = 25
"""How many ordinary lines a line of a logger counts."""
_MIN_UNBUFFERED: Final = 10
_OF_WARNING: Final = 5
"""How many lines of a logger a warning of Python counts."""
_MAX_BEHIND_TOOL: Final = 3
"""Ordinary lines behind what a tool of a shell says; the script goes on with its next line."""


@dataclass(slots=True)
class LinesBehind:
    """What may be of a rank since its first open failure.

    Attributes:
        ordinary: Lines that are neither progress nor a failure.
        written: Characters.
        max_ordinary: The lines from which on one of its open failures was not the end.
    """

    ordinary: int = 0
    written: int = 0
    max_ordinary: float = inf


@dataclass(slots=True)
class OpenFailure:
    """A failure that the run has not survived so far.

    Attributes:
        ends: Whether it ended the program, so that what is started now is another run.
    """

    failure: LogFailure
    ends: bool
    offset: int
    key: tuple[object, ...]
    lines: LinesBehind
    max_ordinary: float
    written_before: int
    progress: int = 0
    logged: int = 0

    @property
    def written(self) -> int:
        """Characters behind it that may be of its rank."""
        return self.lines.written - self.written_before

    @property
    def is_uncaught(self) -> bool:
        """Whether it is an exception that ended its process, as far as its form shows."""
        return self.failure.raised.is_uncaught or self.failure.raised.link is Link.INNER  # the outer one ends it

    @property
    def is_caught(self) -> bool:
        """Whether it is an exception that did not end its process, as far as its form shows."""
        return self.failure.is_raised and not self.is_uncaught

    def is_repeated(self, rank: int | None, entries: AbstractSet[object]) -> bool:
        """Whether the run survived an exception from the same line of the script before."""
        raised = self.failure.raised
        return raised.is_of_script and raised.entry in entries and self.failure.rank == rank

    def concerns(self, rank: int | None) -> bool:
        """Whether a line of a rank says something about it; lines without a rank may be of any."""
        return self.failure.rank is None or rank is None or self.failure.rank == rank


def _max_ordinary(failure: LogFailure) -> float:
    """The ordinary lines that may follow behind an end; if it is certain, they prove nothing."""
    if failure.kind is FailureKind.REPORTED and has_sign("tool", failure.text):
        return _MAX_BEHIND_TOOL
    return inf if has_sign("script ends", failure.text) else _MAX_ORDINARY.get(failure.kind, inf)


def ends_process(failure: LogFailure) -> bool:
    """Whether a process hardly goes on after a failure: it was killed, or its CUDA context is dead."""
    is_dead = any(is_lasting(match) or match.error.context is ContextState.DEAD for match in failure.matches)
    return is_dead or (failure.ended is not None and failure.ended.is_reason)


class OpenFailures:
    """The failures that the last run has not survived so far, and those that any run survived.

    Args:
        ranks: The ranks that the log names.
    """

    def __init__(self, ranks: AbstractSet[int]) -> None:
        self.items: list[OpenFailure] = []
        self.survived: list[Notice] = []
        self.last_uncaught: LogFailure | None = None
        """The last exception of this run that looked like the end of a process, but that others survived."""
        self.last_caught: LogFailure | None = None
        """The last other exception in the user's own code that this run survived, such as one of a server."""
        self.entries: set[object] = set()
        """The outermost lines of the exceptions that any run survived."""
        self.counts: Counter[tuple[object, ...]] = Counter()
        self.has_ended = self.may_start = False
        self._ranks = ranks
        self._lines: dict[int | None, LinesBehind] = {}
        self.output: Counter[str] = Counter()
        """What is printed behind the last failure, apart from stacks of a crash: lines, characters, and what is not
        buffered (lines of loggers, and warnings of Python): if a script had ended, another one wrote that."""

    @property
    def buffered(self) -> int:
        """Characters that may stand in buffers when a process ends."""
        return _BUFFERED_BY_RANKS if self._ranks else _BUFFERED_CHARACTERS

    def add(self, failure: LogFailure, key: tuple[object, ...], offset: int) -> None:
        """Adds a failure."""
        if not self.items:
            self._lines.clear()
        behind = self._lines.setdefault(failure.rank, LinesBehind())
        limit = behind.ordinary + _max_ordinary(failure)
        is_end = failure.kind is FailureKind.ENDED or failure.raised.is_uncaught
        ends = is_end or has_sign("command line", failure.text)
        self._keep_open(OpenFailure(failure, ends, offset, key, behind, limit, behind.written))

    def _keep_open(self, item: OpenFailure) -> None:
        self.items.append(item)
        self.has_ended |= item.ends
        self.may_start |= item.ends or item.failure.is_raised
        item.lines.max_ordinary = min(item.lines.max_ordinary, item.max_ordinary)

    def count(self, line: str, rank: int | None) -> None:
        """Counts what is printed behind failures."""
        for lines in self._lines_of(rank):
            lines.written += len(line)
        if has_sign("after crash", line):
            return
        unbuffered = _OF_WARNING if has_sign("python warning", line) else signs.is_information(line)
        self.output.update(lines=1, characters=len(line), unbuffered=unbuffered)

    def ordinary(self, line: str, rank: int | None) -> None:
        """Counts a line that is neither progress nor a failure; one of a logger counts several times."""
        if has_sign("python warning", line):  # of a program that runs, whatever the shell could not run before
            self.survive(lambda item: item.concerns(rank) and signs.is_of_shell(item.failure.text))
        if self.output["lines"] <= 1 and signs.says_what_instead(line):
            last = self.items[-1]
            self.survive(lambda item: item is last and item.failure.kind in _MAX_ORDINARY)
        is_over, weight = False, _INFORMATION_WEIGHT if signs.is_information(line) else 1
        for lines in self._lines_of(rank):
            lines.ordinary += weight
            is_over |= lines.ordinary > lines.max_ordinary
        if is_over:
            self.survive(lambda item: item.lines.ordinary > item.max_ordinary)

    def _lines_of(self, rank: int | None) -> Iterable[LinesBehind]:
        """The counts of all ranks that a line of a rank, or of any, may be of."""
        some = (self._lines.get(None), self._lines.get(rank))
        return self._lines.values() if rank is None else filter(None, some)

    def is_going_on(self) -> bool:
        """Whether a program printed more behind the last failure than one that ends does."""
        failures, output = [item.failure for item in self.items], self.output
        is_caught = bool(failures) and failures[-1].is_raised and not self.has_ended
        is_again = is_caught and failures[-1].raised.entry in self.entries  # and it was logged again, as of a trial
        if is_again and (output["unbuffered"] or output["lines"] > 1) and len(failures) == 1:
            return True
        if output["characters"] > self.buffered or (is_caught and output["lines"] > _MAX_BEHIND_CAUGHT):
            return not any(ends_process(failure) or failure.is_report for failure in failures)
        if output["unbuffered"] < _MIN_UNBUFFERED or self._ranks:
            return False
        ended = (failure.raised for failure in failures if not signs.is_of_shell(failure.text))
        return all(raised.is_of_script or raised.is_uncaught for raised in ended)

    def survive(self, is_survived: Callable[[OpenFailure], bool]) -> None:
        """Closes the failures that the run survived."""
        items, self.items = self.items, []
        self.has_ended = self.may_start = False
        for lines in self._lines.values():
            lines.max_ordinary = inf
        stays = [not is_survived(item) for item in items]
        for index in range(len(items) - 1, 0, -1):  # what a failure goes back to stays with it
            stays[index - 1] |= stays[index] and items[index].failure.is_linked
        for item, is_open in zip(items, stays, strict=True):
            if is_open:
                self._keep_open(item)
            else:
                self.counts.pop(item.key, None)
                self.keep(item.failure)

    def come_back(self, rank: int | None, raised: Raised) -> None:
        """Closes exceptions that the program caught, if it came to their outermost line again, as another one shows."""
        caught = [item for item in self.items if item.failure.rank == rank and item.is_caught]
        if raised.entry is not None and raised.entry in [item.failure.raised.entry for item in caught]:
            self.survive(lambda item: item.is_caught and item.failure.rank == rank)

    def keep(self, failure: LogFailure) -> None:
        """Keeps a failure that was survived as a notice."""
        if failure.raised.is_uncaught and failure.raised.is_of_script and not failure.is_report:
            self.last_uncaught = failure
        elif failure.raised.has_traceback and (failure.raised.frame or failure.match) and not failure.is_of_tests:
            self.last_caught = failure
        if len(self.survived) < _MAX_SURVIVED:
            self.entries.add(failure.raised.entry)
            title = failure.match.error.title if failure.match else failure.first_text
            self.survived.append(Notice(title, failure.line, failure.match))

    def clear(self) -> None:
        """Closes all of them, because another run starts, whose environment is that of the script above."""
        self.survive(lambda item: not has_sign("environment", item.failure.text))
        self.counts.clear()
        self.last_uncaught = self.last_caught = None
