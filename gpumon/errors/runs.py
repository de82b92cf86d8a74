"""Reads the runs of a log: the failures that the last one has not survived so far, and whether what follows is a run.

Progress, information of loggers and other lines behind a failure show whether its process went on.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Final

from gpumon.errors import signs
from gpumon.errors.failures import FailureLines, with_surroundings, with_values
from gpumon.errors.match import timestamp_at
from gpumon.errors.open_failures import OpenFailure, OpenFailures, ends_process
from gpumon.errors.raised import DIRECT, NO_DIGITS
from gpumon.errors.reading import FailureKind, LogFailure, LogReading, Notice, NumberedLine, Run
from gpumon.errors.scan import LogBlock
from gpumon.errors.signs import has_sign

MAX_OPEN: Final = 4096
"""Open failures that are kept: those of thousands of ranks, each with its own."""
_DIGITS: Final = b"0123456789"
_MAX_RUNS: Final = 256
_MAX_BEHIND_STOP: Final = 100
"""Lines behind an interruption from the keyboard from which on an exception is of another start."""
_MAX_TO_NEXT_STEP: Final = 60
"""Lines between a step of a script that failed and the next one, which fails as it needs the result of that one."""
_MAX_ECHOED: Final = 64
"""Times that the same error of the same rank is read while it is open; after that, it is only counted."""
_MIN_PROGRESS: Final = 3
_MIN_PROGRESS_OF_OTHERS: Final = 20
_LATER_SECONDS: Final = 60.0
_MAX_MESSAGE_LINES: Final = 16
_LINES_BACK: Final = 40
_LINES_OF_RUN: Final = 300
"""Lines with which a run begins, where programs print their settings, that are kept."""
_LINES_OF_LOG: Final = 100
"""The same for the first run, whose script may have prepared what the later ones use."""
_FIRST_LINES: Final = 20
"""Lines with which a log begins; a program that is started again prints them again."""
_MIN_LETTERS: Final = 8
"""Letters of a first line that differs from those of other programs."""
_MIN_AGAIN: Final = 2
_LINES_OF_START: Final = 4
_MAX_PASTED_LINES: Final = 12
_TWICE: Final = 2
_MISSING: Final = frozenset({"FileNotFoundError", "KeyError", "IndexError", "EmptyDataError", "ModuleNotFoundError"})
"""Exceptions of a step that lacks what an earlier one would have made."""
_MAX_OF_IDLE: Final = 200
"""Characters behind a script that could not import a module: it had printed nothing that was still in a buffer."""
_MAX_BETWEEN: Final = 4
"""Lines between a traceback and the same one, printed again, apart from its message."""
_MAX_LINES_BEFORE: Final = 512


class RunReader:
    """Reads the failures of the blocks of a log, and the lines behind them."""

    def __init__(self, reading: LogReading) -> None:
        self._reading = reading
        self._open = OpenFailures(reading.ranks)
        self._start = 1
        self._reached: dict[tuple[int | None, str], int | None] = {}
        self._before: Sequence[tuple[int | None, str]] = ()
        self._first_lines: set[bytes] | None = None
        self._again: set[bytes] = set()
        self._characters = 0

    def add(self, block: LogBlock, failures: Sequence[FailureLines]) -> None:
        """Reads a block."""
        if self._first_lines is None:
            lasting = (item for item in failures if item.failure and not signs.is_of_shell(item.failure.text))
            texts = block.texts[: min((_FIRST_LINES, *(item.start for item in lasting)))]
            self._first_lines = {_shape(text) for text in texts if signs.progress(text) is None}
        position = block.first
        for start, stop, failure, place in (*failures, FailureLines(block.end, block.end, None, block.end)):
            for behind in range(position, min(start, block.end)) if self._open.items else ():
                if self._open.items and block.lines[behind].strip():
                    self._read_line(block, behind)
            if failure is not None:
                self._fail(failure, block, start, place)
            position = max(position, stop)
        self._characters = self._offset(block, block.end)
        kept = self._reading.start
        if kept and kept[-1].number < self._start:
            del kept[_LINES_OF_LOG:]
        new = range(max(block.first, bisect_left(block.numbers, self._start)), block.end)
        shown = (at for at in new if block.texts[at].strip())
        kept += (_printed(block, at) for at in islice(shown, _LINES_OF_RUN - len(kept)))

    def _offset(self, block: LogBlock, position: int) -> int:
        """The characters of the log before a line."""
        return self._characters + block.starts[position] - block.starts[block.first]

    def end(self, last_words: Callable[[], list[LogFailure]]) -> list[Notice]:
        """Ends the last run; what its last lines say counts if no failure is open.

        Returns:
            The failures that any run survived.
        """
        reading = self._reading
        if self._open.is_going_on():
            self._open.survive(bool)
        self._split()
        reading.open = [item.failure for item in self._open.items] or last_words()
        is_said = not self._open.items and bool(reading.open)
        is_plain = is_said or all(item.kind is FailureKind.ENDED for item in reading.open)
        ended = self._open.last_uncaught or (self._open.last_caught if is_plain else None)
        is_told = any(item.is_report or item.ended is not None for item in reading.open)
        if ended is not None and (is_said or (is_told and all(map(_tells_of_exception, reading.open)))):
            reading.open.insert(0, ended)  # the other ranks went on, until the launcher ended them
            self._open.survived = [notice for notice in self._open.survived if notice.line != ended.line]
        while any(item.is_report for item in reading.open) and self._is_of_other_rank(reading.open[0]):
            self._start = reading.runs.pop().first_line
        reading.runs.append(Run(self._start, reading.lines, reading.open[-1] if reading.open else None))
        return self._open.survived

    def _is_of_other_rank(self, failure: LogFailure) -> bool:
        """Whether the run before is another rank of this one, which said the same: no launcher wrote between them."""
        before = self._reading.runs[-1] if self._reading.runs else None
        same = before.failure if before is not None else None
        return (
            before is not None
            and same is not None
            and same.text == failure.text
            and before.last_line - same.line < _MIN_AGAIN
        )

    def _split(self) -> None:
        """Makes a run of each script that ended with an exception: without ranks, one starts after another ended."""
        failures = [item.failure for item in self._open.items]
        if self._reading.ranks or any(item.is_report or item.is_echo or item.ended is not None for item in failures):
            return
        ends = [item for item in self._open.items if item.is_uncaught and item.failure.raised.is_of_script]
        for previous, end in list(pairwise(ends)):
            start = self._open.items.index(end)
            while self._open.items[start].failure.is_linked and self._open.items[start] is not previous:
                start -= 1
            is_again = len(ends) == _TWICE and _is_printed_again(end.failure, previous.failure)
            first = self._open.items[start]
            if first is previous or is_again or _is_next_step(end.failure, previous.failure):
                continue
            self._open.items, later = self._open.items[:start], self._open.items[start:]
            self._restart(first.failure.first_line)
            self._open.items += later

    def _fail(self, failure: LogFailure, block: LogBlock, position: int, place: int) -> None:
        """Adds a failure, whose first line and the one that names it are given, to those that are open."""
        self._open.output.clear()
        raised, known = failure.raised, failure.text[:80].translate(NO_DIGITS)
        key = (failure.kind, raised.name, failure.match.error.id if failure.match else known, failure.rank)
        count = self._open.counts[key]
        self._open.counts[key] += 1
        if count >= _MAX_ECHOED and raised.is_of_script and raised.is_uncaught and not self._reading.ranks:
            self._restart(failure.first_line)  # a script that is started again and again
            count = 0
        is_continued = bool(count) and failure.kind is FailureKind.KNOWN and self._continues(failure, key)
        if is_continued or count >= _MAX_ECHOED or len(self._open.items) >= MAX_OPEN:
            return
        if failure.is_raised and not (raised.is_uncaught or failure.is_echo or failure.is_linked):
            self._open.come_back(failure.rank, raised)
        if raised.is_caught:
            before = block.lines[max(0, position - _MAX_LINES_BEFORE) : position]
            is_late = failure.first_line > _MAX_PASTED_LINES and has_sign("ignored", "".join(before[-2:]))
            is_late = is_late and DIRECT not in "".join(block.by_rank.texts[raised.end_row : raised.end_row + 3])
            is_late |= raised.entry is not None and raised.entry in self._open.entries
            if is_late or any(signs.progress(line) is not None for line in before):  # it worked, and goes on
                self._open.keep(failure)
                return
        if raised.is_uncaught and not failure.is_linked:
            self._open.survive(lambda item: item.is_caught and item.is_repeated(failure.rank, self._open.entries))
        if self._is_of_next_run(failure):
            self._restart(failure.first_line)
        if not self._open.items and failure.kind not in {FailureKind.LOGGED, FailureKind.REPORTED}:
            self._reached.clear()
            near = slice(max(0, position - _LINES_BACK), position + 1)
            self._before = list(zip(block.ranks[near], block.lines[near], strict=True))[::-1]
            self._reading.before = [_printed(block, at) for at in range(near.start, position)]
        self._open.add(with_surroundings(failure, block, place), key, self._offset(block, position))

    def _is_of_next_run(self, failure: LogFailure) -> bool:
        """Whether an exception ends another run: one ended the rank already, and much was printed since."""
        if failure.is_echo or failure.is_report or not failure.is_raised:
            return False
        ended = [item for item in self._open.items if item.is_uncaught and item.failure.rank == failure.rank]
        idle = (item for item in ended if item.failure.raised.is_of_import and not self._reading.ranks)
        if any(item.written > _MAX_OF_IDLE and not _is_next_step(failure, item.failure) for item in idle):
            return not failure.is_linked
        stopped = (item.failure.line for item in ended if item.failure.name == "KeyboardInterrupt")
        if any(failure.line - line > _MAX_BEHIND_STOP for line in stopped):
            return not failure.is_linked
        return failure.raised.is_uncaught and any(item.written > self._open.buffered for item in ended)

    def _continues(self, failure: LogFailure, key: tuple[object, ...]) -> bool:
        """Whether a line continues the message of an open failure, to which its values then belong."""
        item = next((item for item in reversed(self._open.items) if item.key == key), None)
        if item is None or failure.line - item.failure.line > _MAX_MESSAGE_LINES:
            return False
        first, *others = item.failure.matches
        item.failure = replace(item.failure, matches=(with_values(first, failure.matches[0]), *others))
        return True

    def _number_before(self, rank: int | None, key: str) -> int | None:
        """How far a rank was, also before the first failure, so that a repeated line is no progress."""
        if (rank, key) not in self._reached:
            steps = filter(None, (signs.progress(line) for of, line in self._before if of == rank))
            self._reached[rank, key] = next((step.number for step in steps if step.key == key), None)
        return self._reached[rank, key]

    def _read_line(self, block: LogBlock, position: int) -> None:
        """Reads a line behind failures."""
        line, rank, last = block.lines[position], block.ranks[position], self._open.items[-1].failure
        if has_sign("output below", last.text):  # what stands below is older
            return
        step, margin = signs.progress(line), line[: len(line) - len(block.texts[position])]
        is_indented = step is None and (line[0].isspace() or margin.endswith("  "))
        if not is_indented:
            self._open.count(line, rank)
        if not self._open.items or (last.is_of_tests and not signs.starts(block.texts[position])):
            return  # what tests print is no progress, but another run of them is
        if last.is_of_tests or has_sign("restart", line) or (self._open.may_start and self._starts(block, position)):
            self._restart(block.numbers[position])
        elif signs.is_success(line):
            is_stopped = any(has_sign("stops on purpose", before) for _, before in self._before)
            self._open.survive(lambda item: item.concerns(rank) and (item.failure.ended is None or is_stopped))
        elif step is not None:
            self._progress(step, block, position)
        elif not is_indented:
            self._open.ordinary(line, rank)

    def _starts(self, block: LogBlock, position: int) -> bool:
        """Whether a program is started: a shell says so, or a log without ranks begins again with its first lines."""
        shape = _shape(block.texts[position])
        is_again = not self._reading.ranks and shape in (self._first_lines or ())
        self._again.update(
            (shape,) if is_again and sum(map(str.isalpha, block.texts[position])) >= _MIN_LETTERS else ()
        )
        if len(self._again) < _MIN_AGAIN and not (self._open.has_ended and signs.starts(block.texts[position])):
            return False
        behind = block.texts[position + 1 : position + 1 + _LINES_OF_START]
        return not any(has_sign("ends others", text) for text in behind)  # a launcher wrote both when it ended

    def _progress(self, step: signs.WorkLine, block: LogBlock, position: int) -> None:
        number, rank = block.numbers[position], block.ranks[position]
        ended = (item.failure for item in self._open.items if item.failure.ended and not item.failure.ended.is_reason)
        if any("local_rank" in failure.text for failure in ended):
            self._restart(number)  # torchrun says that a rank failed and ends all others, so other ones do this
            return
        if step.number is not None:
            before = self._number_before(rank, step.key)
            is_again = before is not None and step.number <= 1 < before and step.key != "bar"
            if is_again and self._open.has_ended:
                self._restart(number)
                return
            if before is not None and step.number <= before and not is_again:
                return
            self._reached[rank, step.key] = step.number
        for item in self._open.items:
            item.progress += item.concerns(rank)
            item.logged += item.concerns(rank) and signs.is_information(block.lines[position])
        last = self._open.items[-1]
        if not self._reading.ranks and last.failure.raised.is_of_import and last.progress >= _MIN_PROGRESS:
            self._restart(number)  # a script that could not import a module had done nothing yet
            return
        self._open.survive(lambda item: item.concerns(rank) and self._goes_on(item, step, block, position))

    def _goes_on(self, item: OpenFailure, step: signs.WorkLine, block: LogBlock, position: int) -> bool:
        """Whether progress shows that a failure did not end its process."""
        failure = item.failure
        is_next = failure.kind in {FailureKind.RAISED, FailureKind.KNOWN} and item.written <= len(block.lines[position])
        if step.key == signs.DONE and (is_next or ends_process(failure)):  # what only says that the program is done
            return False
        if failure.rank is not None and block.ranks[position] is None and item.progress < _MIN_PROGRESS_OF_OTHERS:
            return False
        if not item.is_uncaught or step.key == signs.ANSWERED:
            return True
        timestamp = None if failure.timestamp is None else timestamp_at(block, position)
        if timestamp is not None and failure.timestamp is not None and timestamp.clock is failure.timestamp.clock:
            # had it been in a buffer, the line above the failure would still be there too
            is_direct = item.offset < self._open.buffered and not self._reading.ranks
            is_later = timestamp.seconds - failure.timestamp.seconds > (0 if is_direct else _LATER_SECONDS)
            return is_later and (item.progress >= _MIN_PROGRESS or not failure.raised.is_of_script)
        is_flushed = item.logged >= _MIN_PROGRESS or self._offset(block, position) - item.offset > self._open.buffered
        is_flushed |= step.key == "bar" and item.progress >= _MIN_PROGRESS_OF_OTHERS  # bars have no buffer
        return item.progress >= _MIN_PROGRESS and is_flushed

    def _restart(self, number: int) -> None:
        """Starts a new run; what ended the one before is no cause of how this one ends."""
        if len(self._reading.runs) < _MAX_RUNS:
            self._reading.runs.append(Run(self._start, number - 1, self._open.items[0].failure))
        self._open.clear()
        self._reached.clear()
        self._before = ()
        self._again.clear()
        self._start = number
        self._reading.first_failed_rank = None
        self._reading.works.clear()


def _printed(block: LogBlock, position: int) -> NumberedLine:
    """A line without its timestamp and its level, but with its rank."""
    rank = block.ranks[position]
    text = block.texts[position].rstrip()
    return NumberedLine(block.numbers[position], text if rank is None else f"rank {rank}: {text}")


def _is_next_step(failure: LogFailure, earlier: LogFailure) -> bool:
    """Whether another script of the same job failed at once, because the result of the earlier one is missing."""
    one, other = failure.raised.entry, earlier.raised.entry
    is_near = failure.first_line - earlier.line <= _MAX_TO_NEXT_STEP
    is_missing = failure.raised.class_name in _MISSING
    is_missing |= has_sign("nothing there", failure.raised.message)
    is_other = one is not None and other is not None and one.file != other.file
    return is_near and ((is_missing and is_other) or has_sign("no checkpoint", failure.raised.message))


def _is_printed_again(failure: LogFailure, earlier: LogFailure) -> bool:
    """Whether a traceback is the one above it, which the program printed before it ended with it."""
    lines = failure.first_line - earlier.line - earlier.raised.message.count("\n")
    return failure.text == earlier.text and failure.raised.entry == earlier.raised.entry and lines <= _MAX_BETWEEN


def _tells_of_exception(failure: LogFailure) -> bool:
    """Whether a failure only says that another process failed, which an exception of Python may have ended."""
    is_told = failure.is_report or failure.is_echo or failure.kind in {FailureKind.ENDED, FailureKind.LOGGED}
    return is_told and (failure.ended is None or failure.ended.code == 1)


def _shape(text: str) -> bytes:
    """A line without what differs from run to run."""
    return text.strip().encode("utf-8", "replace").translate(None, _DIGITS)
