"""A log that was read, as records: its runs, its failures and its notices; the logs of several ranks as one."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gpumon.errors import signs
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.match import Match
from gpumon.errors.prefixes import Timestamp
from gpumon.errors.ranks import RankWork
from gpumon.errors.tracebacks import Raised, TracebackFrame

_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})
_REPORTS: Final = lazy_pattern(
    r"(?:ChildFailedError|CalledProcessError|Process(?:Exited|Raised)Exception|SystemExit|SubprocessError"
    r"|SignalException|metadata-generation-failed|subprocess-exited-with-error)$"
)
_FILE_RANK: Final = lazy_pattern(
    r"(?:rank|worker|proc|node|task|log|stderr|stdout|^|[/\\_.-])[_.-]?(\d{1,5})(?=[/\\_.-]|$)"
)


class FailureKind(Enum):
    """How a failure reads."""

    RAISED = auto()
    """An exception."""
    ENDED = auto()
    """A signal or an exit code."""
    KNOWN = auto()
    """A known error outside an exception."""
    REPORTED = auto()
    """The error of a compiler, a build, an installer, a scheduler or a command line."""
    LOGGED = auto()
    """Another line of the level ERROR."""


class NumberedLine(NamedTuple):
    """A line of a log.

    Attributes:
        number: Its number, from 1.
        text: Its text.
    """

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class LogFailure:
    """A failure in a log.

    Attributes:
        kind: How it reads.
        line: The number of its line, from 1.
        first_line: The number of the first line of its traceback, or the same.
        text: The line.
        rank: The rank that wrote it, if the line names one.
        timestamp: When it was written, if the log says it.
        raised: The exception.
        ended: The end of a process.
        matches: The known errors in it, the best one first.
        count: How often it occurred.
        around: The lines around it, if no entry has it.
        source: The file, if several were read as one log.
    """

    kind: FailureKind
    line: int
    first_line: int
    text: str
    rank: int | None = None
    timestamp: Timestamp | None = None
    raised: Raised | None = None
    ended: signs.Ended | None = None
    matches: tuple[Match, ...] = ()
    count: int = 1
    around: tuple[NumberedLine, ...] = ()
    source: str = ""

    @property
    def match(self) -> Match | None:
        """The known error that it is."""
        return self.matches[0] if self.matches else None

    @property
    def first_text(self) -> str:
        """The first line of its text."""
        return self.text.split("\n")[0]

    @property
    def name(self) -> str:
        """The class of the exception."""
        return "Error in the log" if self.raised is None else self.raised.name

    @property
    def frame(self) -> TracebackFrame | None:
        """The innermost frame in the user's own code, or else the innermost one."""
        return None if self.raised is None else self.raised.frame or self.raised.raising

    @property
    def package(self) -> str:
        """The installed package whose code raised it, on its own or through PyTorch; empty if none did."""
        return "" if self.raised is None else self.raised.package

    @property
    def is_echo(self) -> bool:
        """Whether the failure only follows from another one."""
        return bool(self.matches) and all(match.error.is_echo for match in self.matches)

    @property
    def is_report(self) -> bool:
        """Whether it is an exception that reports the failure of another process."""
        return self.raised is not None and _REPORTS.search(self.raised.name) is not None


class Notice(NamedTuple):
    """A warning, or an error that the run survived.

    Attributes:
        title: What it is.
        line: The number of its first line.
        match: The known error, if it is one.
    """

    title: str
    line: int
    match: Match | None = None


class Run(NamedTuple):
    """A run of the program.

    Attributes:
        first_line: The number of its first line.
        last_line: That of its last one.
        failure: How it ended; None if it did not fail.
    """

    first_line: int
    last_line: int
    failure: LogFailure | None = None


class LogReading(NamedTuple):
    """A log that was read.

    Attributes:
        lines: The number of its lines.
        runs: Its runs, the last one at the end.
        open: The failures that the last run did not survive, in the order of the lines.
        lasting: Known errors of any run that end a program later: not a number, an Xid, a full disk.
        notices: Warnings and errors that were survived.
        ranks: The ranks that the log names.
        programs: The programs that the log names.
        last_lines: Its last lines that are not blank.
        first_failed_rank: The rank that the launcher calls the first one that failed.
        counts: The number of lines with each known error.
        processes: The number of processes for which a GPU has an error, by the error and the bus.
        hang: A known error whose message ends the log: the program waits there.
        is_cut: Whether it stops in the middle of a line.
        works: What NCCL's watchdog says about the collectives of ranks.
    """

    lines: int
    runs: tuple[Run, ...]
    open: tuple[LogFailure, ...]
    lasting: tuple[LogFailure, ...]
    notices: tuple[Notice, ...]
    ranks: tuple[int, ...]
    programs: frozenset[str]
    platform: str
    last_lines: tuple[NumberedLine, ...]
    first_failed_rank: int | None = None
    works: Mapping[int, RankWork] = _NOTHING
    is_cut: bool = False
    hang: Match | None = None
    counts: Mapping[str, int] = _NOTHING
    processes: Mapping[tuple[str, str], int] = _NOTHING


def merged(readings: Sequence[tuple[str, LogReading]]) -> LogReading:
    """The logs of the ranks of one run as one log: a rank is named by its lines, or else by the name of its file.

    Args:
        readings: The name of each log, and the log.
    """
    folder = Path(os.path.commonpath([str(Path(name).parent) for name, _ in readings]))
    ranks = [_rank_in(str(Path(name).relative_to(folder)), number) for number, (name, _) in enumerate(readings)]
    named = [_of_rank(reading, name, rank) for (name, reading), rank in zip(readings, ranks, strict=True)]
    longest = max(named, key=lambda reading: reading.lines)
    failures = sorted(chain.from_iterable(reading.open for reading in named), key=_time_of)
    return longest._replace(
        lines=sum(reading.lines for reading in named),
        open=tuple(failures),
        lasting=tuple(chain.from_iterable(reading.lasting for reading in named)),
        notices=tuple(chain.from_iterable(reading.notices for reading in named)),
        ranks=tuple(sorted(set(chain.from_iterable(reading.ranks for reading in named)))),
        programs=frozenset().union(*(reading.programs for reading in named)),
        works=dict(chain.from_iterable(reading.works.items() for reading in named)),
        first_failed_rank=next((item.first_failed_rank for item in named if item.first_failed_rank is not None), None),
    )


def _rank_in(name: str, number: int) -> int:
    """The rank that the name of a file or of its folder ends with; else its place among the files."""
    digits = _FILE_RANK.findall(name)
    return int(digits[-1]) if digits else number


def _of_rank(reading: LogReading, source: str, rank: int) -> LogReading:
    failing, lasting = (
        tuple(replace(item, rank=rank if item.rank is None else item.rank, source=source) for item in items)
        for items in (reading.open, reading.lasting)
    )
    return reading._replace(open=failing, lasting=lasting, ranks=reading.ranks or (rank,))


def _time_of(failure: LogFailure) -> tuple[float, int]:
    return (failure.timestamp.seconds if failure.timestamp is not None else float("inf"), failure.line)
