"""Reads a log as a sequence of runs: which failures each run had, and which of them it survived.

A log is read once, forward, in bounded memory. A failure stays open until the same rank makes progress after it, the
launcher starts the program again, or the log says that the run ended well. What is open at the end of the log is how
its last run ended.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from typing import Final

from gpumon.errors import signs
from gpumon.errors.candidate import PatternHit
from gpumon.errors.facts.platforms import platform_of
from gpumon.errors.failures import (
    BlockFailures,
    failures_in,
    numbered,
    positions_with,
    with_letters,
    with_surroundings,
    with_values,
)
from gpumon.errors.find import ErrorFinder
from gpumon.errors.match import Match, lines_near, timestamp_at
from gpumon.errors.open_failures import OpenFailure, OpenFailures, ends_process
from gpumon.errors.programs import programs_in
from gpumon.errors.raised import DIRECT, Link, Raised
from gpumon.errors.ranks import SIGNS, RankWork, with_line
from gpumon.errors.reading import FailureKind, LogFailure, LogReading, Notice, Run
from gpumon.errors.scan import LogBlock, blocks

_MAX_OPEN: Final = 4096
"""Open failures that are kept: those of thousands of ranks, each with its own."""
_MAX_RUNS: Final = 256
_MAX_PROCESSES: Final = 64
_MAX_BEHIND_STOP: Final = 100
"""Lines behind an interruption from the keyboard from which on an exception is of another start."""
_MAX_ECHOED: Final = 64
"""Times that the same error of the same rank is read while it is open; after that, it is only counted."""
_LAST_LINES: Final = 5
_END_LINES: Final = 3
_LAST_WORDS: Final = 2
"""Lines at the end of a log that may say why the program gave up."""
_MIN_PROGRESS: Final = 3
_MIN_PROGRESS_OF_OTHERS: Final = 20
_LATER_SECONDS: Final = 60.0
_MAX_MESSAGE_LINES: Final = 16
_LINES_BACK: Final = 40
_FIRST_LINES: Final = 20
"""Lines with which a log begins; a program that is started again prints them again."""
_MIN_LETTERS: Final = 8
"""Letters of a first line that differs from those of other programs."""
_MIN_AGAIN: Final = 2
_MAX_PASTED_LINES: Final = 12
_IGNORED: Final = signs.sign("ignored")
_MAX_LINES_BEFORE: Final = 512
_RANK_SIGNS: Final = with_letters(SIGNS)
_NO_DIGITS: Final = str.maketrans("", "", "0123456789")


class LogReader:
    """Reads the blocks of a log."""

    def __init__(self, finder: ErrorFinder) -> None:
        self._finder = finder
        self._reading = LogReading()
        self._open = OpenFailures(self._reading.ranks)
        self._notices: dict[str, Notice] = {}
        self._lasting: dict[tuple[str, int | None], LogFailure] = {}
        self._run_start = 1
        self._reached: dict[tuple[int | None, str], int] = {}
        self._first_lines: set[str] = set()
        self._again = 0
        self._characters = 0
        self._at_end: Match | None = None

    def read(self, chunks: Iterable[bytes]) -> LogReading:
        """Reads a log in chunks of any size."""
        block, reading = None, self._reading
        for block in blocks(chunks):
            self._add(block)
        reading.is_cut = block is not None and not block.is_complete and _is_cut(block.lines)
        if self._open.is_going_on():
            self._open.survive(bool)
        self._split()
        reading.open = [item.failure for item in self._open.items] or self._last_words()
        reading.runs.append(Run(self._run_start, reading.lines, reading.open[-1] if reading.open else None))
        reading.lasting = list(self._lasting.values())
        reading.notices = sorted((*self._notices.values(), *self._open.survived), key=attrgetter("line"))
        reading.hang = self._hang()
        return reading

    def _split(self) -> None:
        """Makes a run of each script that ended with an exception: without ranks, one starts after another ended."""
        failures = [item.failure for item in self._open.items]
        if self._reading.ranks or any(item.is_report or item.is_echo or item.ended is not None for item in failures):
            return
        raised = [(number, item.raised) for number, item in enumerate(failures) if item.raised is not None]
        ends = [number for number, item in raised if item.is_uncaught and item.is_of_script]
        for start in [number for number in ends[1:] if not failures[number].is_linked]:
            later = self._open.items[start - len(failures) :]
            del self._open.items[start - len(failures) :]
            self._restart(later[0].failure.first_line)
            self._open.items = later

    def _last_words(self) -> list[LogFailure]:
        """A line at the end that reads like what a program says when it gives up."""
        known, lines = {notice.line for notice in self._notices.values()}, self._reading.last_lines
        said = (line for line in lines[-_LAST_WORDS:] if line.number not in known and signs.is_last_word(line.text))
        first = next(said, None)
        named = () if first is None else ((FailureKind.REPORTED, first.number, first.text),)
        return [LogFailure(*name, around=tuple(lines)) for name in named]

    def _hang(self) -> Match | None:
        """The error at whose message the log stops, if it does."""
        leading = [item.match for item in self._lasting.values() if item.match is not None and not item.is_echo]
        last = max(leading, key=attrgetter("line"), default=None)
        end = self._reading.last_lines[-_END_LINES:][0].number if self._reading.last_lines else 0
        return next((match for match in (self._at_end, last) if match is not None and match.line >= end), None)

    def _add(self, block: LogBlock) -> None:
        reading, new = self._reading, range(block.end - 1, block.first - 1, -1)
        shown = (position for position in new if block.lines[position].strip())
        last = [numbered(block, position) for position in islice(shown, _LAST_LINES)]
        reading.last_lines = [*reading.last_lines, *reversed(last)][-_LAST_LINES:]
        reading.lines = block.numbers[-1] if block.numbers else reading.lines
        if len(reading.ranks) < _MAX_OPEN:
            reading.ranks.update(rank for rank in set(block.ranks) if rank is not None)
        for position in positions_with(block, _RANK_SIGNS) if reading.ranks else ():
            rank = block.ranks[position]
            if rank is not None and (rank in reading.works or len(reading.works) < _MAX_OPEN):
                reading.works[rank] = with_line(reading.works.get(rank, RankWork()), block.lines[position])
        hits = self._finder.hits(block)
        if hits:
            near = lines_near(block, hits[0])
            reading.programs |= programs_in(block.words.letters, near)
            reading.platform = reading.platform or platform_of(near)
        result = failures_in(block, hits)
        self._keep(result, hits)
        if not self._characters:
            lasting = (item for item in result.failures if item.failure and not signs.is_of_shell(item.failure.text))
            texts = block.texts[: min((_FIRST_LINES, *(item.start for item in lasting)))]
            self._first_lines = {_shape(text) for text in texts if signs.progress(text) is None}
        position = block.first
        for start, stop, failure, place in (*result.failures, (block.end, block.end, None, block.end)):
            if self._open.items and start > position:
                self._walk(block, position, start)
            if failure is not None:
                self._fail(failure, block, start, place)
            position = max(position, stop)
        self._characters += sum(map(len, block.lines[block.first : block.end])) + block.end - block.first

    def _keep(self, result: BlockFailures, hits: Sequence[PatternHit]) -> None:
        """Keeps what a block says about the complete log."""
        for hit in hits:
            self._reading.counts[hit.error.id] += 1
            bus, process = (hit.line_match.groups.get(name) for name in ("bus", "pid"))
            processes = self._reading.processes.setdefault((hit.error.id, bus), set()) if bus and process else set()
            if process and len(processes) < _MAX_PROCESSES:
                processes.add(process)
        for match in result.notices:
            self._notices.setdefault(match.error.id, Notice(match.error.title, match.line, match))
        for failure in result.lasting:
            assert failure.match is not None
            self._lasting.setdefault((failure.match.error.id, failure.rank), failure)
        self._at_end = result.at_end or self._at_end
        if result.first_failed_rank is not None:
            self._reading.first_failed_rank = result.first_failed_rank

    def _fail(self, failure: LogFailure, block: LogBlock, position: int, place: int) -> None:
        """Adds a failure, whose first line and the one that names it are given, to those that are open."""
        self._open.fail()
        name = failure.raised.name if failure.raised else ""
        known = failure.match.error.id if failure.match else failure.text[:80].translate(_NO_DIGITS)
        key = (failure.kind, name, known, failure.rank)
        count, raised = self._open.counts[key], failure.raised
        self._open.counts[key] += 1
        is_continued = bool(count) and failure.kind is FailureKind.KNOWN and self._continues(failure)
        if is_continued or count >= _MAX_ECHOED or len(self._open.items) >= _MAX_OPEN:
            return
        if raised is not None and raised.is_caught:
            before = block.lines[max(0, position - _MAX_LINES_BEFORE) : position]
            is_late = failure.first_line > _MAX_PASTED_LINES and _IGNORED.is_in("".join(before[-2:]))
            is_late = is_late and DIRECT not in "".join(block.by_rank.texts[raised.end_row : raised.end_row + 3])
            if is_late or any(signs.progress(line) is not None for line in before):  # it worked, and goes on
                self._open.keep(failure)
                return
        if raised is not None and self._is_of_next_run(failure, raised):
            self._restart(failure.first_line)
        if raised is not None and not raised.is_uncaught and not failure.is_echo and raised.link is Link.NONE:
            self._open.come_back(failure.rank, raised)
        if not self._open.items and failure.kind not in {FailureKind.LOGGED, FailureKind.REPORTED}:
            self._look_back(block, position)
        self._open.add(with_surroundings(failure, block, place), self._offset(block, position), key)

    def _is_of_next_run(self, failure: LogFailure, raised: Raised) -> bool:
        """Whether an exception ends another run: one ended the rank already, and much was printed since."""
        stopped = (item.failure for item in self._open.items if item.is_uncaught and item.failure.rank == failure.rank)
        if failure.is_echo or failure.is_report:
            return False
        if any(item.name == "KeyboardInterrupt" and failure.line - item.line > _MAX_BEHIND_STOP for item in stopped):
            return raised.link is Link.NONE
        return raised.is_uncaught and any(
            item.is_uncaught
            and item.failure.rank == failure.rank
            and item.lines.written - item.written_before > self._open.buffered
            for item in self._open.items
        )

    def _continues(self, failure: LogFailure) -> bool:
        """Whether a line continues the message of an open failure, to which its values then belong."""
        for item in reversed(self._open.items):
            first = item.failure
            if first.kind is failure.kind and failure.line - first.line > _MAX_MESSAGE_LINES:
                return False
            if first.rank == failure.rank and first.match is not None and failure.match is not None:
                is_same = first.match.error.id == failure.match.error.id and first.kind is failure.kind
                if is_same:
                    item.failure = replace(first, matches=(with_values(first.match, failure.match), *first.matches[1:]))
                    return True
        return False

    def _offset(self, block: LogBlock, position: int) -> int:
        return self._characters + block.starts[position] - block.starts[block.first]

    def _look_back(self, block: LogBlock, position: int) -> None:
        """Remembers how far the run was before a failure, so that a repeated line is no progress."""
        self._reached.clear()
        for index in range(max(0, position - _LINES_BACK), position + 1):
            step = signs.progress(block.lines[index])
            if step is not None and step.number is not None:
                self._reached[block.ranks[index], step.key] = step.number

    def _walk(self, block: LogBlock, start: int, end: int) -> None:
        """Reads the lines behind failures."""
        for position in range(max(start, block.first), min(end, block.end)):
            if not self._open.items:
                return
            if block.lines[position].strip():
                self._read_line(block, position)

    def _read_line(self, block: LogBlock, position: int) -> None:
        line, rank = block.lines[position], block.ranks[position]
        if signs.is_above_output(self._open.items[-1].failure.text):  # what stands below is older
            return
        margin = line[: len(line) - len(block.texts[position])]
        is_indented = line[0].isspace() or margin.endswith("  ")
        if not is_indented:
            self._open.count(line, rank)
        if not self._open.items:
            return
        if self._open.items[-1].failure.is_of_tests:  # what tests print is no progress, but another run of them is
            if signs.starts(block.texts[position]):
                self._restart(block.numbers[position])
        elif signs.restarts(line) or (self._open.may_start and self._starts(block, position)):
            self._restart(block.numbers[position])
        elif signs.is_success(line):
            self._open.survive(lambda item: item.concerns(rank))
        elif (step := signs.progress(line)) is not None:
            self._progress(step, block, position)
        elif not is_indented:
            self._open.ordinary(line, rank)

    def _starts(self, block: LogBlock, position: int) -> bool:
        """Whether a program is started: a shell says so, or a log without ranks begins again with its first lines."""
        shape = _shape(block.texts[position])
        is_again = not self._reading.ranks and shape in self._first_lines
        self._again += is_again and sum(map(str.isalpha, shape)) >= _MIN_LETTERS
        return self._again >= _MIN_AGAIN or (self._open.has_ended and signs.starts(block.texts[position]))

    def _progress(self, step: signs.WorkLine, block: LogBlock, position: int) -> None:
        number, rank = block.numbers[position], block.ranks[position]
        ends = (item.failure for item in self._open.items if item.failure.ended is not None)
        if any("local_rank" in failure.text and not failure.ended.is_reason for failure in ends if failure.ended):
            # torchrun says that a rank failed and ends all others, so other ones do this
            self._restart(number)
            return
        if step.number is not None:
            before = self._reached.get((rank, step.key))
            is_again = before is not None and step.number <= 1 < before and step.key != "bar"
            if is_again and self._open.has_ended:
                self._restart(number)
                return
            if before is not None and step.number <= before and not is_again:
                return
            self._reached[rank, step.key] = step.number
        offset = self._offset(block, position)
        for item in self._open.items:
            item.progress += item.concerns(rank)
            item.logged += item.concerns(rank) and signs.is_information(block.lines[position])
        self._open.survive(lambda item: item.concerns(rank) and self._goes_on(item, step, block, position, offset))

    def _goes_on(self, item: OpenFailure, step: signs.WorkLine, block: LogBlock, position: int, offset: int) -> bool:
        """Whether progress shows that a failure did not end its process."""
        failure = item.failure
        is_next = failure.raised is not None and item.lines.written - item.written_before <= len(block.lines[position])
        if step.key == signs.DONE and (is_next or ends_process(failure)):  # what only says that the program is done
            return False
        if failure.rank is not None and block.ranks[position] is None and item.progress < _MIN_PROGRESS_OF_OTHERS:
            return False
        if not item.is_uncaught or step.key == signs.ANSWERED:
            return True
        timestamp = None if failure.timestamp is None else timestamp_at(block, position)
        if timestamp is not None and failure.timestamp is not None and timestamp.clock is failure.timestamp.clock:
            return timestamp.seconds - failure.timestamp.seconds > _LATER_SECONDS
        is_flushed = item.logged >= _MIN_PROGRESS or offset - item.offset > self._open.buffered
        return item.progress >= _MIN_PROGRESS and is_flushed

    def _restart(self, number: int) -> None:
        """Starts a new run; what ended the one before is no cause of how this one ends."""
        if len(self._reading.runs) < _MAX_RUNS:
            self._reading.runs.append(Run(self._run_start, number - 1, self._open.items[0].failure))
        self._open.clear()
        self._reached.clear()
        self._again = 0
        self._run_start = number
        self._reading.first_failed_rank = None
        self._reading.works.clear()


def _shape(text: str) -> str:
    """A line without what differs from run to run."""
    return text.strip().translate(_NO_DIGITS)


def _is_cut(lines: Sequence[str]) -> bool:
    """Whether the last line is only the start of one, as those before it show."""
    if not lines or not lines[-1].strip() or lines[-1].rstrip().endswith("]"):  # such as a bar, which has no line end
        return False
    last = lines[-1].translate(_NO_DIGITS)
    if not any(map(str.isalpha, last)):
        return False
    before = (line.translate(_NO_DIGITS) for line in lines[-_LINES_BACK:-1])
    return any(
        len(last) < len(line) and line.startswith(last.rstrip()) and line.strip() != last.strip() for line in before
    )
