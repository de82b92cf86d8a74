"""A log that was read, as records: its runs, its failures and its notices; the logs of several ranks as one."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import chain
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.errors import signs
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.match import Match
from gpumon.errors.prefixes import Timestamp
from gpumon.errors.raised import NOT_RAISED, Link, Raised, TracebackFrame
from gpumon.errors.ranks import RankWork
from gpumon.errors.signs import has_sign

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
    """A line of a log."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class LogFailure:
    """A failure in a log.

    Attributes:
        matches: The known errors in it, the best one first.
        source: The file, if several were read as one log.
        first_line: The number of the first line of its traceback; 0 without one.
    """

    kind: FailureKind
    line: int
    text: str
    rank: int | None = None
    timestamp: Timestamp | None = None
    raised: Raised = NOT_RAISED
    ended: signs.Ended | None = None
    matches: tuple[Match, ...] = ()
    around: tuple[NumberedLine, ...] = ()
    source: str = ""
    first_line: int = 0

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
        return self.raised.name or "Error in the log"

    @property
    def is_raised(self) -> bool:
        """Whether it is an exception."""
        return self.kind is FailureKind.RAISED

    @property
    def frame(self) -> TracebackFrame | None:
        """The innermost frame in the user's own code, or else the innermost one."""
        return self.raised.frame or self.raised.raising

    @property
    def operands(self) -> list[str]:
        """The values in the user's line that failed; none if it is a package that computes with others."""
        return self.frame.operands if self.frame and self.frame.is_own and not self.raised.package else []

    @property
    def is_echo(self) -> bool:
        """Whether the failure only follows from another one."""
        return bool(self.matches) and all(match.error.is_echo for match in self.matches)

    @property
    def is_of_tests(self) -> bool:
        """Whether a program that runs tests reports it, as an exception or in its last line."""
        return self.raised.is_of_test or (self.kind is FailureKind.REPORTED and has_sign("failed tests", self.text))

    @property
    def is_linked(self) -> bool:
        """Whether it is an exception that was raised from the one above it."""
        return self.raised.link is not Link.NONE

    @property
    def is_report(self) -> bool:
        """Whether it is an exception that reports the failure of another process."""
        is_of_command = not self.matches and has_sign("failed command", self.raised.message)
        return is_of_command or has_sign("report of another", self.raised.name)


class Notice(NamedTuple):
    """A warning, or an error that the run survived."""

    title: str
    line: int
    match: Match | None = None

    @property
    def key(self) -> str:
        """The id of the known error, or else the title."""
        return self.title if self.match is None else self.match.error.id


class Run(NamedTuple):
    """A run of the program."""

    first_line: int
    last_line: int
    failure: LogFailure | None = None


@dataclass(slots=True)
class LogReading:
    """A log that was read.

    Attributes:
        open: The failures that the last run did not survive, in the order of the lines.
        lasting: Known errors of any run that end a program later: not a number, an Xid, a full disk.
        platform: Where the program ran; empty for Linux outside a notebook.
        first_failed_rank: The rank that the launcher calls the first one that failed.
        works: What NCCL's watchdog says about the collectives of ranks.
        hang: A known error whose message ends the log: the program waits there.
        start: The lines with which the last run began.
        before: The lines before the first failure that is open.
        processes: The processes for which a GPU has an error, by the error and the bus.
    """

    lines: int = 0
    runs: list[Run] = field(default_factory=list)
    open: list[LogFailure] = field(default_factory=list)
    lasting: list[LogFailure] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)
    programs: frozenset[str] = frozenset()
    platform: str = ""
    last_lines: list[NumberedLine] = field(default_factory=list)
    first_failed_rank: int | None = None
    works: dict[int, RankWork] = field(default_factory=dict)
    is_cut: bool = False
    hang: Match | None = None
    counts: Counter[str] = field(default_factory=Counter)
    start: list[NumberedLine] = field(default_factory=list)
    before: Sequence[NumberedLine] = ()
    processes: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    @property
    def batch_values(self) -> dict[str, str]:
        """The size of a batch and half of it, if the program printed only one, or only one of a single step."""
        lines = (signs.sign("batch size").pattern.finditer(line.text) for line in self.start)
        batches = {match["name"].lower(): int(match["size"]) for match in chain.from_iterable(lines)}
        names = [name for name in batches if has_sign("batch of a step", name)] or list(batches)
        printed = {batches[name] for name in names}
        size = printed.pop() if len(printed) == 1 else 0
        return {"printed_batch": str(size), "half_batch": str(size // 2)} if size else {}


def merged(readings: Sequence[tuple[str, LogReading]]) -> LogReading:
    """The logs of the ranks of one run as one log: a rank is named by its lines, or else by the name of its file."""
    folder = Path(os.path.commonpath([str(Path(name).parent) for name, _ in readings]))
    for number, (name, reading) in enumerate(readings):
        digits = _FILE_RANK.findall(str(Path(name).relative_to(folder)))
        rank = int(digits[-1]) if digits else number
        for some in (reading.open, reading.lasting):
            some[:] = [replace(item, rank=rank if item.rank is None else item.rank, source=name) for item in some]
        reading.ranks = reading.ranks or {rank}
    logs = [reading for _, reading in readings]
    return replace(
        max(logs, key=lambda reading: reading.lines),
        lines=sum(reading.lines for reading in logs),
        runs=max((reading.runs for reading in logs), key=len),
        open=_of_last_run(logs),
        lasting=list(chain.from_iterable(reading.lasting for reading in logs)),
        notices=list(chain.from_iterable(reading.notices for reading in logs)),
        ranks=set(chain.from_iterable(reading.ranks for reading in logs)),
        programs=frozenset(chain.from_iterable(reading.programs for reading in logs)),
        before=(),
        works=dict(chain.from_iterable(reading.works.items() for reading in logs)),
        first_failed_rank=next((item.first_failed_rank for item in logs if item.first_failed_rank is not None), None),
    )


def _of_last_run(logs: Sequence[LogReading]) -> list[LogFailure]:
    """The failures that the logs end with, without those that are nearer in time to the end of an earlier run.

    A rank may be missing in a later run, or write to another file.
    """
    failures = list(chain.from_iterable(reading.open for reading in logs))
    ended = [run.failure for reading in logs for run in reading.runs[:-1] if run.failure is not None]
    earlier = [failure.timestamp.seconds for failure in ended if failure.timestamp is not None]
    latest = max((failure.timestamp.seconds for failure in failures if failure.timestamp is not None), default=0.0)
    seconds = {id(item): inf if item.timestamp is None else item.timestamp.seconds for item in failures}
    kept = (
        item
        for item in failures
        if item.timestamp is None or all(latest - seconds[id(item)] <= abs(seconds[id(item)] - end) for end in earlier)
    )
    return sorted(kept, key=lambda item: (seconds[id(item)], item.line))
