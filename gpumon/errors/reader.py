"""Reads a log as a sequence of runs: which failures each run had, and which of them it survived.

A log is read once, forward, in bounded memory. A failure stays open until the same rank makes progress after it, the
launcher starts the program again, or the log says that the run ended well. What is open at the end of the log is how
its last run ended.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final

from gpumon.errors import signs
from gpumon.errors.candidate import PatternHit
from gpumon.errors.facts.platforms import platform_of
from gpumon.errors.failures import BlockFailures, failures_in, numbered, positions_with, with_letters
from gpumon.errors.find import ErrorFinder
from gpumon.errors.match import Match, lines_near
from gpumon.errors.programs import programs_in
from gpumon.errors.raised import NO_DIGITS
from gpumon.errors.ranks import SIGNS, RankWork, with_line
from gpumon.errors.reading import FailureKind, LogFailure, LogReading, Notice
from gpumon.errors.runs import MAX_OPEN, RunReader
from gpumon.errors.scan import LogBlock, blocks
from gpumon.errors.signs import has_sign, is_last_word

_MAX_PROCESSES: Final = 64
_LAST_LINES: Final = 5
_END_LINES: Final = 3
_LINES_BACK: Final = 40
_MIN_LONGER: Final = 2
_LAST_WORDS: Final = 2
"""Lines at the end of a log that may say why the program gave up."""
_RANK_SIGNS: Final = with_letters(SIGNS)


class LogReader:
    """Reads the blocks of a log."""

    def __init__(self, finder: ErrorFinder) -> None:
        self._finder = finder
        self._reading = LogReading()
        self._runs = RunReader(self._reading)
        self._notices: dict[str, Notice] = {}
        self._lasting: dict[tuple[str, int | None], LogFailure] = {}
        self._at_end: Match | None = None

    def read(self, chunks: Iterable[bytes]) -> LogReading:
        """Reads a log in chunks of any size."""
        for block in blocks(chunks):
            self._add(block)
        reading, survived = self._reading, self._runs.end(self._last_words)
        reading.lasting = list(self._lasting.values())
        reading.notices = sorted((*self._notices.values(), *survived), key=attrgetter("line"))
        reading.hang = self._hang()
        return reading

    def _last_words(self) -> list[LogFailure]:
        """A line at the end that reads like what a program says when it gives up."""
        known, lines = {notice.line for notice in self._notices.values()}, self._reading.last_lines
        own = [line for line in lines if not signs.has_information_level(line.text)]  # not those of a server that stops
        new = [line for line in lines[-_LAST_WORDS:] if line.number not in known]
        last = [line for line in new if is_last_word(line.text) and not has_sign("ends nothing", line.text)]
        last = last or [line for line in lines[-1:] if has_sign("server error", line.text)]
        said = last or [line for line in own[-_LAST_WORDS:] if has_sign("last verdict", line.text)]
        return [LogFailure(FailureKind.REPORTED, *line, around=tuple(lines)) for line in islice(said, 1)]

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
        reading.is_cut = not block.is_complete and _is_cut(block.lines)
        if len(reading.ranks) < MAX_OPEN:
            reading.ranks.update(rank for rank in set(block.ranks) if rank is not None)
        for position in positions_with(block, _RANK_SIGNS) if reading.ranks else ():
            rank = block.ranks[position]
            if rank is not None and rank in reading.ranks:
                reading.works[rank] = with_line(reading.works.get(rank, RankWork()), block.lines[position])
        hits = self._finder.hits(block)
        if hits:
            near = lines_near(block, hits[0])
            reading.programs |= programs_in(block.words.letters, near)
            reading.platform = reading.platform or platform_of(near)
        result = failures_in(block, hits)
        self._keep(result, hits)
        self._runs.add(block, result.failures)

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


def _is_cut(lines: Sequence[str]) -> bool:
    """Whether the last line is only the start of one, as several before it show."""
    if not lines or lines[-1].rstrip().endswith("]"):  # such as a bar, which has no line end
        return False
    last = lines[-1].translate(NO_DIGITS).rstrip()
    before = (line.translate(NO_DIGITS).rstrip() for line in lines[-_LINES_BACK:-1])
    longer = sum(line.startswith(last) and line != last for line in before)
    return any(map(str.isalpha, last)) and longer >= _MIN_LONGER
