"""Failures that a run has not survived so far, and what is printed behind them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from gpumon.errors import signs
from gpumon.errors.entry import ContextState
from gpumon.errors.failures import is_lasting
from gpumon.errors.reading import FailureKind, LogFailure

_MAX_ORDINARY: Final = {FailureKind.LOGGED: 40, FailureKind.REPORTED: 40, FailureKind.KNOWN: 400}
"""Ordinary lines after which an error that is only a line of text was not the end."""
_EXECUTED: Final = "<string>"
"""The file of code that the program itself executes: it goes on if it prints anything after an exception of it."""
_MAX_BEHIND_CAUGHT: Final = 40
"""Lines behind an exception that a program caught and printed, after which it goes on whatever they say."""
INFORMATION_WEIGHT: Final = 25
"""How many ordinary lines a line of a logger counts."""
_MIN_UNBUFFERED: Final = 10
_OF_WARNING: Final = 5
"""How many lines of a logger a warning of Python counts."""
_PYTHON_WARNING, _AFTER_CRASH = signs.sign("python warning"), signs.sign("after crash")
_COMMAND_LINE, _TOOL = signs.sign("command line"), signs.sign("tool")
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
    """A failure that the run has not survived so far."""

    failure: LogFailure
    offset: int
    key: tuple[object, ...]
    lines: LinesBehind
    max_ordinary: float
    written_before: int
    progress: int = 0

    @property
    def is_uncaught(self) -> bool:
        """Whether it is an exception that ended its process, as far as its form shows."""
        return self.failure.raised is not None and self.failure.raised.is_uncaught

    def concerns(self, rank: int | None) -> bool:
        """Whether a line of a rank says something about it; lines without a rank may be of any."""
        return self.failure.rank is None or rank is None or self.failure.rank == rank

    @property
    def ends(self) -> bool:
        """Whether it ended the program, so that what is started now is another run."""
        return self.failure.kind is FailureKind.ENDED or self.is_uncaught or _COMMAND_LINE.is_in(self.failure.text)


@dataclass(slots=True)
class OutputBehind:
    """What is printed behind the last failure, apart from stacks of a crash.

    Attributes:
        unbuffered: Lines of loggers, and warnings of Python: if a script had ended, another one wrote them.
    """

    lines: int = 0
    written: int = 0
    unbuffered: int = 0

    def add(self, line: str) -> None:
        """Counts a line."""
        if not _AFTER_CRASH.is_in(line):
            self.lines += 1
            self.written += len(line)
            self.unbuffered += _OF_WARNING if _PYTHON_WARNING.is_in(line) else signs.is_information(line)


def is_going_on(some: Sequence[OpenFailure], output: OutputBehind, *, is_buffered: bool, has_ranks: bool) -> bool:
    """Whether a program printed more behind the last failure than one that ends does."""
    failures = [item.failure for item in some]
    is_caught = bool(failures) and failures[-1].raised is not None and not any(item.ends for item in some)
    if not is_buffered or (is_caught and output.lines > _MAX_BEHIND_CAUGHT):
        return not any(ends_process(failure) or failure.is_report for failure in failures)
    if output.unbuffered < _MIN_UNBUFFERED or has_ranks:
        return False
    raised = [failure.raised for failure in failures if not signs.is_of_shell(failure.text)]
    return all(item is not None and item.is_of_script for item in raised)


def max_ordinary(failure: LogFailure) -> float:
    """The ordinary lines that may follow behind an end; if it is certain, they prove nothing."""
    raised = failure.raised
    if failure.kind is FailureKind.REPORTED and _TOOL.is_in(failure.text):
        return _MAX_BEHIND_TOOL
    is_executed = raised is not None and raised.frame is not None and raised.frame.file == _EXECUTED
    return 1 if raised is not None and is_executed and not raised.is_uncaught else _MAX_ORDINARY.get(failure.kind, inf)


def ends_process(failure: LogFailure) -> bool:
    """Whether a process hardly goes on after a failure: it was killed, or its CUDA context is dead."""
    is_dead = any(is_lasting(match) or match.error.context is ContextState.DEAD for match in failure.matches)
    return is_dead or (failure.ended is not None and failure.ended.is_reason)
