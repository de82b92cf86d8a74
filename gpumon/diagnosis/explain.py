"""Finds the known errors of a log, which is read as a stream and may have any length."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, zip_longest
from typing import Final

from gpumon.core.text import safe_text
from gpumon.diagnosis.cause import first_cause
from gpumon.diagnosis.explanation import Explanation, Match
from gpumon.diagnosis.last_error import IGNORED, TRACEBACK, LastError
from gpumon.diagnosis.memory_cause import is_first_step
from gpumon.diagnosis.memory_message import read_memory_message
from gpumon.diagnosis.unknown import ErrorForm
from gpumon.errors.facts.platforms import platform_of
from gpumon.errors.find import ErrorFinder
from gpumon.errors.load import catalogue
from gpumon.errors.prefixes import Timestamp, timestamp_of
from gpumon.errors.programs import is_relevant, program_of, program_of_errors, programs_in, signs_in
from gpumon.errors.raised import raised_error
from gpumon.errors.rank import names_of
from gpumon.errors.scan import LogBlock, blocks
from gpumon.errors.wrapped_search import PatternHit

_MAX_EXCERPT: Final = 400
"""Characters of a log line that are shown."""
_MAX_VALUE: Final = 200
"""Characters of a value that a message contains."""
_CHUNK_BYTES: Final = 1 << 20
_MAX_LINES_BACK: Final = 256
"""Lines before an error in which the timestamp of its rank is searched; a traceback has no timestamps."""
_MAX_RANKS: Final = 1024
"""Ranks per error whose first line is compared with the earliest one."""
_MAX_PROCESSES: Final = 64
"""Processes per error that are counted."""
_LAST_ERROR: Final = re.compile(r"\bLast error: {0,4}(?P<reason>[^\n]{0,200})$")
"""NCCL's own reason, on this line or the next one."""
_MAX_LINES_TO_REASON: Final = 4
_MAX_MESSAGE_LINES: Final = 16
_MAX_LINES_NEAR: Final = 24
"""Lines around an error that show the operating system and the program."""
_MAX_MERGED: Final = 8
"""Lines of one message whose values are read: a traceback has the message in its code and at its end."""
_LAST_LINES: Final = 3
"""Lines at the end of a log, without the blank ones, that show where a program hangs."""
_MAX_TRACEBACK_LINES: Final = 32
_MAX_PLATFORM_LINES: Final = 64
"""Lines before and after an error whose paths show the platform."""
_CAUGHT: Final = re.compile(rf"{IGNORED.pattern}|some optimizations will not be enabled")
"""Above the traceback of an exception that does not end the program; the text is xFormers'."""
_WARNING: Final = re.compile(r"\b(?:WARN|WARNING)\b|Warning\b|\[W\d{3,4} |^W\d{4} ")


def explain(chunks: Iterable[bytes]) -> Explanation:
    """Finds every known error in a log, and the one that is the cause; or the last error, if it is unknown.

    An echo is not the cause if another error ends the log, known or not.

    Args:
        chunks: The log, in chunks of any size.
    """
    finder = _finder()
    tallies: dict[str, _Tally] = defaultdict(_Tally)
    last = LastError(_timestamp)
    lines = 0
    programs: set[str] = set()
    platform = ""
    for block in blocks(chunks):
        hits = finder.hits(block)
        if hits:
            near = _near(block, hits[0])
            programs |= programs_in(block.letters, near)
            platform = platform or platform_of(near)
        for hit in hits:
            tallies[hit.error.id].add(block, hit)
        echoes = {hit.position for hit in hits if hit.error.is_echo}
        last.add(block, {hit.position for hit in hits if not hit.error.is_last}, echoes)
        lines = block.numbers[-1] if block.numbers else 0
    unknown = last.error
    unsorted = (tally.match() for tally in _errors(tallies.values(), last))
    matches = sorted(unsorted, key=lambda match: match.line)
    if unknown is not None and _are_echoes(matches):
        code = "" if unknown.frame is None else unknown.frame.code
        identified = raised_error(unknown.text, unknown.package, code)
        if identified is not None:
            matches, unknown = [*matches, Match.of_unknown(unknown, *identified)], None
    program = program_of_errors(match.error for match in matches) or program_of(programs)
    if not matches or (unknown is not None and unknown.form <= ErrorForm.CRASH and _are_echoes(matches)):
        placed = tuple(_in_place(match, program, platform) for match in matches)
        return Explanation(placed, lines, unknown, last.last_lines)
    cause = first_cause(matches)
    rest = (match for match in matches if match is not cause)
    is_later = unknown is not None and unknown.form <= ErrorForm.CRASH and unknown.line > cause.line
    values = {**_values_of_others(cause, matches), **cause.values}
    first = _in_place(replace(cause, is_cause=True, values=values), program, platform)
    return Explanation((first, *rest), lines, unknown if is_later else None, last.last_lines)


def _errors(tallies: Iterable["_Tally"], last: LastError) -> list["_Tally"]:
    """The errors of a log; one that has none may end in a line at which programs hang."""
    errors: list[_Tally] = []
    ends: list[_Tally] = []
    for tally in tallies:
        (ends if tally.is_last else errors).append(tally)
    if errors or last.error is not None:
        return errors
    return [tally for tally in ends if tally.end >= last.last_lines[-_LAST_LINES:][0].number]


def _in_place(match: Match, program: str, platform: str) -> Match:
    """An error in the log of a program on a platform, on which its fixes may depend; their names may be empty."""
    place = {"program": program if is_relevant(program, names_of(match.error)[1]) else "", "platform": platform}
    return replace(match, values={**match.values, **{name: text for name, text in place.items() if text}})


def _are_echoes(matches: Iterable[Match]) -> bool:
    """Whether the cause may be another error: echoes follow it, and after harmless warnings the program continues."""
    return all(match.error.is_echo or (match.is_warning and not match.error.is_leading) for match in matches)


def _values_of_others(cause: Match, matches: Sequence[Match]) -> dict[str, int | str]:
    """Values from another message, such as the capability of the GPU in a warning long before a kernel is missing."""
    others = {match.error.id: match.values for match in reversed(matches)}
    pairs = ((name, others.get(other, {})) for name, other in cause.error.borrowed)
    return {name: values[name] for name, values in pairs if name in values}


def explain_text(text: str) -> Explanation:
    """Finds every known error in a text, such as a pasted one."""
    data = text.encode("utf-8", "replace")
    return explain(data[start : start + _CHUNK_BYTES] for start in range(0, len(data), _CHUNK_BYTES))


def explain_source(chunks: Iterator[bytes], name: str) -> Explanation:
    """Explains a log, or the report that a probe wrote when a process ran out of memory.

    Args:
        chunks: The content, decompressed.
        name: The name of the source in error messages.

    Raises:
        CommandError: The source is such a report and cannot be read.
    """
    first = next(chunks, b"")
    content = chain((first,), chunks)
    if b"gpumon-oom" not in first:
        return explain(content)

    from gpumon.core.oom_file import is_oom_file, read_oom_file  # late, because few texts are reports
    from gpumon.diagnosis.oom import explain_oom

    return explain_oom(read_oom_file(content, name)) if is_oom_file(first) else explain(content)


@cache
def _finder() -> ErrorFinder:
    return ErrorFinder(catalogue())


class _Tally:
    """All lines with one error. The match that is shown is the earliest one."""

    def __init__(self) -> None:
        self._first: Match | None = None
        self._ranks: set[int] = set()
        self._processes: set[str] = set()
        self._count = 0
        self.end = 0

    @property
    def is_last(self) -> bool:
        """Whether the lines are a sign of an error only at the end of a log."""
        return self._first is not None and self._first.error.is_last

    def add(self, block: LogBlock, hit: PatternHit) -> None:
        """Counts a line, and keeps its match if it is the earliest one.

        Of a rank that already has a match, later lines are only counted: a log may have the same error a million times.
        So are the lines of too many ranks.
        """
        rank = block.ranks[hit.position]
        self.end = block.numbers[hit.position]
        is_new = rank is not None and rank not in self._ranks
        first = self._first
        is_promoted = first is not None and first.is_warning and not _is_mere_warning(block, hit)
        if first is None or is_promoted or (is_new and len(self._ranks) < _MAX_RANKS):
            match = _match(block, hit)
            self._first = match if first is None else first_cause([first, match])
        elif self._count < _MAX_MERGED and _is_same_message(first, block, hit):
            self._first = _merged(first, _match(block, hit))
        self._count += 1
        if rank is not None:
            self._ranks.add(rank)
        self._add_process(hit)

    def match(self) -> Match:
        """The earliest match, with the number of lines and their ranks."""
        assert self._first is not None  # a tally is created only to add a line
        processes = {"processes": len(self._processes)} if len(self._processes) > 1 else {}
        values = {**self._first.values, **processes}
        return replace(self._first, count=self._count, ranks=tuple(sorted(self._ranks)), values=values)

    def _add_process(self, hit: PatternHit) -> None:
        """Counts the processes for which one GPU has an Xid: its bus and the process are values of the line."""
        assert self._first is not None
        bus, process = (hit.line_match.groups.get(name) for name in ("bus", "pid"))
        if bus and process and bus == self._first.values.get("bus") and len(self._processes) < _MAX_PROCESSES:
            self._processes.add(process)


def _match(block: LogBlock, hit: PatternHit) -> Match:
    memory = read_memory_message(hit.text)
    texts = {**hit.line_match.groups, **dict(_last_error(hit))}
    values: dict[str, int | str] = {name: safe_text(text, _MAX_VALUE) for name, text in texts.items()}
    if signs := signs_in(block.letters, names_of(hit.error)[0]):
        values["signs"] = signs
    return Match(
        hit.error,
        block.numbers[hit.position],
        safe_text(hit.line_match.line if len(hit.line_match.line) <= _MAX_EXCERPT else hit.text, _MAX_EXCERPT),
        rank=block.ranks[hit.position],
        timestamp=_timestamp(block, hit.position),
        is_warning=_is_mere_warning(block, hit),
        values=values if memory is None else values | memory.sizes(),
        memory=memory,
        is_first_step=memory is not None and is_first_step(_near(block, hit)),
    )


def _near(block: LogBlock, hit: PatternHit) -> list[str]:
    """The lines around an error, with their prefixes."""
    return block.lines[max(0, hit.position - _MAX_LINES_NEAR) : hit.position + _MAX_LINES_NEAR]


def _is_same_message(first: Match, block: LogBlock, hit: PatternHit) -> bool:
    """Whether a line continues the message of an earlier one: the same error of the same rank, a few lines below it."""
    distance = block.numbers[hit.position] - first.line
    return first.memory is None and distance <= _MAX_MESSAGE_LINES and block.ranks[hit.position] == first.rank


def _merged(first: Match, later: Match) -> Match:
    """A match with the values of a further line of its message; the message is quoted, not the code that raises it."""
    values = {**later.values, **first.values}
    if first.is_code and not later.is_code:
        return replace(first, line=later.line, text=later.text, values=values)
    return replace(first, values=values)


def _is_mere_warning(block: LogBlock, hit: PatternHit) -> bool:
    return hit.error.is_warning or _is_warning(block, hit.position)


def _last_error(hit: PatternHit) -> Iterator[tuple[str, str]]:
    """The reason that NCCL prints below its error, as a value."""
    if "Last error:" not in hit.text:
        return
    end = hit.lines.of_rank(hit.next_row - 1).stop
    texts = hit.lines.texts[hit.next_row - 1 : min(end, hit.next_row + _MAX_LINES_TO_REASON)]
    for text, following in zip_longest(texts, texts[1:], fillvalue=""):
        line = _LAST_ERROR.search(text.rstrip())
        if line is not None:
            reason = line["reason"].strip() or following.strip()
            yield from (("last_error", reason),) if reason else ()
            return


def _is_warning(block: LogBlock, position: int) -> bool:
    """Whether a line is a warning; Python prints a message that starts with a line end below the word "Warning:".

    A line that was split from a record of a JSON log has the level of that record, which its first line contains.
    """
    is_announced = position > 0 and block.lines[position - 1].rstrip().endswith("Warning:")
    record = bisect_left(block.numbers, block.numbers[position])
    is_warning = any(_WARNING.search(block.lines[index]) is not None for index in {position, record})
    return is_announced or is_warning or _is_ignored(block, position)


def _is_ignored(block: LogBlock, position: int) -> bool:
    """Whether a line ends the traceback of an exception that the program caught, as the line above it says."""
    prefix = len(block.lines[position]) - len(block.texts[position].lstrip())
    for index in range(position - 1, max(0, position - _MAX_TRACEBACK_LINES), -1):
        line = block.lines[index]
        if TRACEBACK in line:
            return _CAUGHT.search(block.lines[index - 1]) is not None
        if not line[prefix : prefix + 1].isspace():
            return False
    return False


def _timestamp(block: LogBlock, position: int) -> Timestamp | None:
    """The timestamp of a line, or that of the last line of the same rank before it, which only serves to compare.

    The lines that were split from a record have the time of that record.
    """
    start = max(0, position - _MAX_LINES_BACK + 1)
    rank = block.ranks[position]
    for index in range(position, start - 1, -1):
        if rank is None or block.ranks[index] in {None, rank}:
            timestamp = timestamp_of(block.lines[index])
            if timestamp is not None:
                is_own = block.numbers[index] == block.numbers[position]
                return timestamp if is_own else timestamp._replace(text="")
    return None
