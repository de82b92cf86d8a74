"""Reads a log as a sequence of runs: which failures each run had, and which of them it survived.

A log is read once, forward, in bounded memory. A failure stays open until the same rank makes progress after it, the
launcher starts the program again, or the log says that the run ended well. What is open at the end of the log is how
its last run ended.
"""

import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Final

from gpumon.core.text import safe_text
from gpumon.errors import signs
from gpumon.errors.entry import ContextState
from gpumon.errors.facts.platforms import platform_of
from gpumon.errors.find import ErrorFinder
from gpumon.errors.match import Match
from gpumon.errors.matches import lines_near, match_of, timestamp_at
from gpumon.errors.prefixes import Timestamp
from gpumon.errors.programs import programs_in
from gpumon.errors.ranks import SIGNS, RankWork, with_line
from gpumon.errors.scan import LogBlock, blocks
from gpumon.errors.tracebacks import CAUGHT_ABOVE, Raised, exceptions
from gpumon.errors.unknown import NumberedLine
from gpumon.errors.wrapped_search import PatternHit

_MAX_TEXT: Final = 400
_MAX_OPEN: Final = 4096
"""Open failures that are kept: those of thousands of ranks, each with its own."""
_MAX_SURVIVED: Final = 256
_MAX_RUNS: Final = 256
_MAX_PROCESSES: Final = 64
_MAX_LINES_PER_SIGN: Final = 512
"""Lines per block and sign that are examined, from the end."""
_MAX_ECHOED: Final = 64
"""Times that the same error of the same rank is read while it is open; after that, it is only counted."""
_LAST_LINES: Final = 5
_END_LINES: Final = 3
_LINES_BEFORE: Final = 8
_LINES_AFTER: Final = 4
_BUFFERED_CHARACTERS: Final = 10_000
"""What a program has printed may reach a log behind its traceback: its buffer of 8 KiB is written when it ends."""
_BUFFERED_BY_RANKS: Final = 80_000
_MIN_PROGRESS: Final = 3
_MIN_PROGRESS_OF_OTHERS: Final = 20
_LATER_SECONDS: Final = 60.0
_MAX_MESSAGE_LINES: Final = 16
_WEIGHT: Final = 25
_LINES_BACK: Final = 40
_WEAK_SIGNS: Final = (
    "rror",
    "ERROR",
    "FATAL",
    "CRITICAL",
    "fatal",
    "FAILED",
    "E: ",
    "*** ",
    "not found",
    "No such file",
    "annot exec",
    "ermission denied",
    "build stopped",
)
_END_SIGNS: Final = (
    *("xit", "ignal", "eturned ", "failed with ", "Killed", "Aborted", "Segmentation fault", "Bus error", "Terminated"),
    *("Illegal instruction", "Floating point exception", "local_rank: ", " failed", " error"),
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
    def is_echo(self) -> bool:
        """Whether the failure only follows from another one."""
        return bool(self.matches) and all(match.error.is_echo for match in self.matches)


@dataclass(slots=True)
class _Open:
    """A failure that the run has not survived so far."""

    failure: LogFailure
    offset: int
    ordinary: int = 0
    progress: int = 0
    key: tuple[object, ...] = ()


_MAX_ORDINARY: Final = {FailureKind.LOGGED: 40, FailureKind.REPORTED: 40, FailureKind.KNOWN: 400}
"""Ordinary lines after which an error that is only a line of text was not the end."""
_EXECUTED: Final = "<string>"
"""The file of code that the program itself executes: it goes on if it prints anything after an exception of it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning, or an error that the run survived.

    Attributes:
        title: What it is.
        line: The number of its first line.
        match: The known error, if it is one.
    """

    title: str
    line: int
    match: Match | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the program.

    Attributes:
        first_line: The number of its first line.
        last_line: That of its last one.
        failure: How it ended; None if it did not fail.
    """

    first_line: int
    last_line: int
    failure: LogFailure | None = None


@dataclass(frozen=True, slots=True)
class LogReading:
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
    works: Mapping[int, RankWork] = field(default_factory=dict)
    is_cut: bool = False
    hang: Match | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    processes: Mapping[tuple[str, str], int] = field(default_factory=dict)


class LogReader:
    """Reads the blocks of a log.

    Args:
        finder: Finds the known errors.
    """

    def __init__(self, finder: ErrorFinder) -> None:
        self._finder = finder
        self._open: list[_Open] = []
        self._counts: dict[tuple[object, ...], int] = {}
        self._survived: list[Notice] = []
        self._notices: dict[str, Notice] = {}
        self._lasting: dict[tuple[str, int | None], LogFailure] = {}
        self._runs: list[Run] = []
        self._run_start = 1
        self._reached: dict[tuple[int | None, str], int] = {}
        self._characters = 0
        self._lines = 0
        self._ranks: set[int] = set()
        self._programs: set[str] = set()
        self._platform = ""
        self._last_lines: list[NumberedLine] = []
        self._at_end: Match | None = None
        self._is_complete = True
        self._line_counts: Counter[str] = Counter()
        self._processes: dict[tuple[str, str], set[str]] = {}
        self._first_failed: int | None = None
        self._works: dict[int, RankWork] = {}

    def read(self, chunks: Iterable[bytes]) -> LogReading:
        """Reads a log in chunks of any size."""
        block: LogBlock | None = None
        for block in blocks(self._watched(chunks)):
            self._add(block)
        is_cut = block is not None and not self._is_complete and _is_cut(block.lines)
        last = self._open[-1].failure if self._open else None
        runs = (*self._runs, Run(self._run_start, self._lines, last))
        return LogReading(
            self._lines,
            runs,
            tuple(item.failure for item in self._open),
            tuple(self._lasting.values()),
            tuple(sorted((*self._notices.values(), *self._survived), key=lambda notice: notice.line)),
            tuple(sorted(self._ranks)),
            frozenset(self._programs),
            self._platform,
            tuple(self._last_lines),
            self._first_failed,
            self._works,
            is_cut,
            self._hang(),
            self._line_counts,
            {key: len(processes) for key, processes in self._processes.items()},
        )

    def _watched(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The chunks; the last one shows whether the last line is complete."""
        for chunk in chunks:
            self._is_complete = chunk.endswith(b"\n")
            yield chunk

    def _hang(self) -> Match | None:
        """The error at whose message the log stops, if it does."""
        leading = [item.match for item in self._lasting.values() if item.match is not None and not item.is_echo]
        last = max(leading, key=lambda match: match.line, default=None)
        end = self._last_lines[-_END_LINES:][0].number if self._last_lines else 0
        return next((match for match in (self._at_end, last) if match is not None and match.line >= end), None)

    def _add(self, block: LogBlock) -> None:
        self._keep_last_lines(block)
        if block.numbers:
            self._lines = block.numbers[-1]
        ranks = set(block.ranks)
        if ranks != {None}:
            self._ranks.update(rank for rank in ranks if rank is not None and len(self._ranks) < _MAX_OPEN)
        walker = _Walker(block)
        position = block.first
        if self._ranks:
            self._keep_works(block)
        hits = self._finder.hits(block)
        if hits:
            near = lines_near(block, hits[0])
            self._programs |= programs_in(block.letters, near)
            self._platform = self._platform or platform_of(near)
        for event in _failures(block, hits, self):
            if self._open and event.start > position:
                self._walk(walker, position, event.start)
            if event.failure is not None:
                self._fail(event.failure, walker, event.start)
            position = max(position, event.stop)
        if self._open and position < block.end:
            self._walk(walker, position, block.end)
        self._characters += walker.size(block.first, block.end)

    def _fail(self, failure: LogFailure, walker: "_Walker", position: int) -> None:
        """Adds a failure to those that are open."""
        name = failure.raised.name if failure.raised else ""
        known = failure.match.error.id if failure.match else failure.text[:80].translate(_NO_DIGITS)
        key = (failure.kind, name, known, failure.rank)
        count = self._counts.get(key, 0)
        self._counts[key] = count + 1
        if count and failure.kind is FailureKind.KNOWN and self._continues(failure):
            return
        if count >= _MAX_ECHOED or len(self._open) >= _MAX_OPEN:
            return
        if failure.raised is not None and failure.raised.is_caught and self._works_before(walker, position):
            self._keep_survived(failure)
            return
        if not self._open and failure.kind not in {FailureKind.LOGGED, FailureKind.REPORTED}:
            self._look_back(walker, position)
        self._open.append(_Open(failure, self._offset(walker, position), key=key))

    @staticmethod
    def _works_before(walker: "_Walker", position: int) -> bool:
        """Whether the program worked before it caught an exception, so that it goes on after it."""
        lines = walker.block.lines[max(0, position - _MAX_LINES_PER_SIGN) : position]
        return any(signs.progress(line) is not None for line in lines)

    def _continues(self, failure: LogFailure) -> bool:
        """Whether a line continues the message of an open failure, to which its values then belong."""
        for item in reversed(self._open):
            first = item.failure
            if first.rank == failure.rank and first.match is not None and failure.match is not None:
                is_same = first.match.error.id == failure.match.error.id and first.kind is failure.kind
                if is_same and failure.line - first.line <= _MAX_MESSAGE_LINES:
                    item.failure = replace(
                        first, matches=(_with_values(first.match, failure.match), *first.matches[1:])
                    )
                    return True
        return False

    def _offset(self, walker: "_Walker", position: int) -> int:
        return self._characters + walker.size(walker.block.first, position)

    def _look_back(self, walker: "_Walker", position: int) -> None:
        """Remembers how far the run was before a failure, so that a repeated line is no progress."""
        self._reached.clear()
        for index in range(max(0, position - _LINES_BACK), position + 1):
            step = signs.progress(walker.block.lines[index])
            if step is not None and step.number is not None:
                self._reached[walker.block.ranks[index], step.key] = step.number

    def _walk(self, walker: "_Walker", start: int, end: int) -> None:
        """Reads the lines behind failures."""
        block = walker.block
        for position in range(max(start, block.first), min(end, block.end)):
            line, text = block.lines[position], block.texts[position]
            if not line.strip():
                continue
            if signs.restarts(line) or (signs.starts(text) and self._has_ended()):
                self._restart(block.numbers[position])
            elif signs.is_success(line):
                self._survive(partial(_is_of, block.ranks[position]))
            else:
                step = signs.progress(line)
                if step is not None:
                    self._progress(step, walker, position)
                elif not line[0].isspace():
                    self._ordinary(block.ranks[position], _WEIGHT if signs.is_information(line) else 1)
            if not self._open:
                return

    def _has_ended(self) -> bool:
        """Whether an open failure ended the program, so that what is started now is another run."""
        return any(
            item.failure.kind is FailureKind.ENDED
            or (item.failure.raised is not None and item.failure.raised.is_uncaught)
            for item in self._open
        )

    def _progress(self, step: signs.WorkLine, walker: "_Walker", position: int) -> None:
        number, rank = walker.block.numbers[position], walker.block.ranks[position]
        if any(_is_of_launcher(item.failure) for item in self._open):  # its ranks are gone, so others do this
            self._restart(number)
            return
        if step.number is not None:
            before = self._reached.get((rank, step.key))
            if before is not None and step.number <= before:
                if step.number <= 1 < before and step.key != "bar" and self._has_ended():
                    self._restart(number)
                return
            self._reached[rank, step.key] = step.number
        offset = self._offset(walker, position)
        for item in self._open:
            if _concerns(item.failure.rank, rank):
                item.progress += 1
        self._survive(
            lambda item: _concerns(item.failure.rank, rank) and self._goes_on(item, step, walker, position, offset)
        )

    def _goes_on(self, item: _Open, step: signs.WorkLine, walker: "_Walker", position: int, offset: int) -> bool:
        """Whether progress shows that a failure did not end its process."""
        failure = item.failure
        if step.key == signs.DONE and _ends_process(failure):
            return False
        rank = walker.block.ranks[position]
        if failure.rank is not None and rank is None and item.progress < _MIN_PROGRESS_OF_OTHERS:
            return False
        if failure.raised is None or not failure.raised.is_uncaught or step.key == signs.ANSWERED:
            return True
        if failure.timestamp is not None:
            timestamp = timestamp_at(walker.block, position)
            is_same = timestamp is not None and timestamp.clock is failure.timestamp.clock
            if is_same and timestamp is not None:
                return timestamp.seconds - failure.timestamp.seconds > _LATER_SECONDS
        buffered = _BUFFERED_BY_RANKS if self._ranks else _BUFFERED_CHARACTERS
        return item.progress >= _MIN_PROGRESS and offset - item.offset > buffered

    def _ordinary(self, rank: int | None, weight: int) -> None:
        """Counts a line that is neither progress nor a failure; one of a logger counts several times."""
        is_over = False
        for item in self._open:
            limit = _max_ordinary(item.failure)
            if limit is not None and _concerns(item.failure.rank, rank):
                item.ordinary += weight
                is_over |= item.ordinary > limit
        if is_over:
            self._survive(lambda item: item.ordinary > (_max_ordinary(item.failure) or item.ordinary))

    def _survive(self, is_survived: Callable[[_Open], bool]) -> None:
        kept: list[_Open] = []
        for item in self._open:
            if is_survived(item):
                self._counts.pop(item.key, None)
                self._keep_survived(item.failure)
            else:
                kept.append(item)
        self._open = kept

    def _keep_survived(self, failure: LogFailure) -> None:
        if len(self._survived) < _MAX_SURVIVED:
            title = failure.match.error.title if failure.match else failure.text
            self._survived.append(Notice(title, failure.line, failure.match))

    def _restart(self, number: int) -> None:
        """Starts a new run; what ended the one before is no cause of how this one ends."""
        if len(self._runs) < _MAX_RUNS:
            self._runs.append(Run(self._run_start, number - 1, self._open[0].failure))
        for item in self._open:
            self._keep_survived(item.failure)
        self._open.clear()
        self._counts.clear()
        self._reached.clear()
        self._run_start = number
        self._first_failed = None
        self._works.clear()

    def _keep_last_lines(self, block: LogBlock) -> None:
        last: list[NumberedLine] = []
        for position in range(block.end - 1, block.first - 1, -1):
            if len(last) == _LAST_LINES:
                break
            if block.lines[position].strip():
                last.append(_numbered(block, position))
        self._last_lines = [*self._last_lines, *reversed(last)][-_LAST_LINES:]

    def count(self, hit: PatternHit) -> None:
        """Counts the lines with each error, and the processes for which one GPU has an Xid."""
        self._line_counts[hit.error.id] += 1
        bus, process = (hit.line_match.groups.get(name) for name in ("bus", "pid"))
        if bus and process:
            processes = self._processes.setdefault((hit.error.id, bus), set())
            if len(processes) < _MAX_PROCESSES:
                processes.add(process)

    def note(self, match: Match) -> None:
        """Keeps a warning."""
        self._notices.setdefault(match.error.id, Notice(match.error.title, match.line, match))

    def keep_last(self, match: Match) -> None:
        """Keeps an error whose message is a sign of it only if the log ends with it."""
        self._at_end = match

    def keep_lasting(self, failure: LogFailure) -> None:
        """Keeps a known error that may end the program later."""
        assert failure.match is not None
        self._lasting.setdefault((failure.match.error.id, failure.rank), failure)

    def _keep_works(self, block: LogBlock) -> None:
        for position in _positions_with(block, SIGNS):
            rank = block.ranks[position]
            if rank is not None and (rank in self._works or len(self._works) < _MAX_OPEN):
                self._works[rank] = with_line(self._works.get(rank, RankWork()), block.lines[position])

    def names_first(self, rank: int) -> None:
        """Keeps the rank that a launcher calls the first one that failed; its summary names it last."""
        self._first_failed = rank


def _max_ordinary(failure: LogFailure) -> int | None:
    """Ordinary lines after which a failure was not the end; None if they prove nothing."""
    if failure.raised is not None and failure.raised.frame is not None and not failure.raised.is_uncaught:
        return 1 if failure.raised.frame.file == _EXECUTED else None
    return _MAX_ORDINARY.get(failure.kind)


def _is_of_launcher(failure: LogFailure) -> bool:
    """Whether torchrun says that a rank failed, after which it ends all others."""
    return failure.ended is not None and not failure.ended.is_reason and "local_rank" in failure.text


def _ends_process(failure: LogFailure) -> bool:
    """Whether a process hardly goes on after a failure: it was killed, or its CUDA context is dead."""
    is_dead = any(_is_lasting(match) or match.error.context is ContextState.DEAD for match in failure.matches)
    return is_dead or (failure.ended is not None and failure.ended.is_reason)


_FILE_RANK: Final = re.compile(
    r"(?:rank|worker|proc|node|task|log|stderr|stdout|^|[/\\_.-])[_.-]?(\d{1,5})(?=[/\\_.-]|$)"
)
_NO_DIGITS: Final = str.maketrans("", "", "0123456789")


def _is_of(rank: int | None, item: "_Open") -> bool:
    return _concerns(item.failure.rank, rank)


def _concerns(failed: int | None, rank: int | None) -> bool:
    """Whether a line of a rank says something about a failure of a rank; lines without a rank may be of any."""
    return failed is None or rank is None or failed == rank


@dataclass
class _Walker:
    """A block, with the sizes of its lines."""

    block: LogBlock
    _ends: list[int] = field(default_factory=list)

    def size(self, start: int, end: int) -> int:
        """The number of characters from a line to another one."""
        if not self._ends:
            self._ends = list(accumulate((len(line) + 1 for line in self.block.lines), initial=0))
        return self._ends[end] - self._ends[start]


@dataclass(frozen=True, slots=True)
class _Event:
    """A failure and the positions of its lines in a block; without one, lines that are only passed over."""

    start: int
    stop: int
    failure: LogFailure | None


def _failures(block: LogBlock, hits: Sequence[PatternHit], reader: LogReader) -> list[_Event]:
    """The failures of a block, in the order of its lines."""
    rows = block.by_rank
    raised = [item for item in exceptions(block) if block.first <= rows.positions[item.row] < block.end]
    by_raised: dict[int, list[PatternHit]] = {}
    spans = [(item.first_row, item.end_row) for item in raised]
    events: list[_Event] = []
    taken: set[int] = set()
    for hit in hits:
        reader.count(hit)
        row = rows.rows[hit.position]
        index = next((i for i, (first, end) in enumerate(spans) if first <= row < end), None)
        if index is not None:
            if row >= raised[index].row:
                by_raised.setdefault(index, []).append(hit)
            continue
        event = _known(block, hit, reader)
        taken.add(hit.position)
        if event is not None:
            events.append(event)
    events += [_raised_event(block, item, by_raised.get(index, ()), reader) for index, item in enumerate(raised)]
    covered = {rows.positions[row] for first, end in spans for row in range(first, end)} | taken
    events += _other_failures(block, covered, reader)
    return sorted(events, key=lambda event: event.start)


def _raised_event(block: LogBlock, raised: Raised, hits: Sequence[PatternHit], reader: LogReader) -> _Event:
    positions = block.by_rank.positions
    position = positions[raised.row]
    matches = _matches(block, hits)
    text = f"{raised.name}: {raised.message}" if raised.message else raised.name
    failure = LogFailure(
        FailureKind.RAISED,
        block.numbers[position],
        block.numbers[positions[raised.first_row]],
        text,
        block.ranks[position],
        timestamp_at(block, position),
        raised,
        matches=matches,
        around=() if matches else _around(block, position),
    )
    is_warning = raised.name.endswith("Warning") or (matches and all(match.error.is_warning for match in matches))
    for match in matches:
        if _is_lasting(match):
            reader.keep_lasting(replace(failure, matches=(match,)))
    if is_warning and not raised.is_uncaught:
        for match in matches:
            reader.note(match)
        return _Event(positions[raised.first_row], positions[raised.end_row - 1] + 1, None)
    return _Event(positions[raised.first_row], positions[raised.end_row - 1] + 1, failure)


def _matches(block: LogBlock, hits: Sequence[PatternHit]) -> tuple[Match, ...]:
    """The known errors in the message of an exception, each once: that of the first line first, an echo last."""
    matches: dict[str, Match] = {}
    for hit in hits:
        match, first = match_of(block, hit), matches.get(hit.error.id)
        matches[hit.error.id] = match if first is None else _with_values(first, match)
    return tuple(sorted(matches.values(), key=lambda match: (match.error.is_echo, match.error.is_warning)))


def _with_values(first: Match, later: Match) -> Match:
    """A match with the values of a further line of its message; the message is quoted, not the code that raises it."""
    values = {**later.values, **first.values}
    if first.is_code and not later.is_code:
        return replace(first, line=later.line, text=later.text, values=values)
    return replace(first, values=values)


def _known(block: LogBlock, hit: PatternHit, reader: LogReader) -> _Event | None:
    """A known error outside an exception; warnings are kept apart."""
    match = match_of(block, hit)
    is_warning = match.is_warning
    failure = LogFailure(
        FailureKind.KNOWN,
        match.line,
        match.line,
        match.text,
        block.ranks[hit.position],
        match.timestamp,
        matches=(match,),
    )
    ended = signs.ended(block.lines[hit.position], block.texts[hit.position])
    if ended is not None:
        failure = replace(failure, kind=FailureKind.ENDED, ended=ended)
    if hit.error.is_last:
        reader.keep_last(match)
        return None
    if _is_lasting(match):
        reader.keep_lasting(failure)
    if is_warning or match.is_code:
        reader.note(match)
        return None
    return _Event(hit.position, hit.position + 1, failure)


def _is_lasting(match: Match) -> bool:
    """Whether an error is of a kind that may end the program later."""
    return match.error.is_leading or match.error.context is ContextState.RESET


def _other_failures(block: LogBlock, covered: set[int], reader: LogReader) -> Iterator[_Event]:
    """Signals, exit codes and lines of errors, apart from those that were read already."""
    for position in _positions_with(block, (*_END_SIGNS, *_WEAK_SIGNS)):
        if position in covered or not block.first <= position < block.end:
            continue
        line, text = block.lines[position], block.texts[position]
        first = signs.first_failed_rank(text)
        if first is not None:
            reader.names_first(first)
            continue
        ended = signs.ended(line, text)
        if ended is not None:
            kind = FailureKind.ENDED
        elif signs.is_failed_test_run(text) or signs.is_reported_error(text):
            kind = FailureKind.REPORTED
        elif signs.has_error_level(line) and CAUGHT_ABOVE.search(line) is None:
            kind = FailureKind.LOGGED
        else:
            continue
        number = block.numbers[position]
        shown = safe_text(text.strip(), _MAX_TEXT)
        rank = block.ranks[position]
        timestamp, around = timestamp_at(block, position), _around(block, position)
        failure = LogFailure(kind, number, number, shown, rank, timestamp, ended=ended, around=around)
        yield _Event(position, position + 1, failure)


def _is_cut(lines: Sequence[str]) -> bool:
    """Whether the last line is only the start of one, as those before it show."""
    if not lines or not lines[-1].strip():
        return False
    last = lines[-1].translate(_NO_DIGITS)
    before = (line.translate(_NO_DIGITS) for line in lines[-_LINES_BACK:-1])
    return any(
        len(last) < len(line) and line.startswith(last.rstrip()) and line.strip() != last.strip() for line in before
    )


def _around(block: LogBlock, position: int) -> tuple[NumberedLine, ...]:
    """The lines of the same rank around an error."""
    rows = block.by_rank
    row = rows.rows[position]
    rank = rows.of_rank(row)
    near = range(max(rank.start, row - _LINES_BEFORE), min(rank.stop, row + _LINES_AFTER + 1))
    return tuple(_numbered(block, rows.positions[other]) for other in near)


def _numbered(block: LogBlock, position: int) -> NumberedLine:
    return NumberedLine(block.numbers[position], safe_text(block.lines[position].rstrip(), _MAX_TEXT))


def _positions_with(block: LogBlock, needles: Sequence[str]) -> list[int]:
    """The lines of a block that contain one of some texts, for each at most a fixed number, from the end."""
    text = "\n".join(block.lines)
    starts: list[int] | None = None
    positions: set[int] = set()
    for needle in needles:
        end = len(text)
        for _ in range(_MAX_LINES_PER_SIGN):
            index = text.rfind(needle, 0, end)
            if index < 0:
                break
            if starts is None:
                starts = list(accumulate((len(line) + 1 for line in block.lines), initial=0))
            position = bisect_right(starts, index) - 1
            positions.add(position)
            end = starts[position]
    return sorted(positions)


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
    return replace(
        longest,
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
    return replace(reading, open=failing, lasting=lasting, ranks=reading.ranks or (rank,))


def _time_of(failure: LogFailure) -> tuple[float, int]:
    return (failure.timestamp.seconds if failure.timestamp is not None else float("inf"), failure.line)
