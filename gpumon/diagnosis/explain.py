"""Finds the known errors of a log, which is read as a stream and may have any length."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Final

from gpumon.core.oom_file import is_oom_file, read_oom_file
from gpumon.core.text import safe_text
from gpumon.diagnosis.catalogue import ERRORS
from gpumon.diagnosis.cause import first_cause
from gpumon.diagnosis.explanation import Explanation, Match
from gpumon.diagnosis.last_error import LastError
from gpumon.diagnosis.match import ErrorFinder, PatternHit
from gpumon.diagnosis.memory_message import read_memory_message
from gpumon.diagnosis.oom import explain_oom
from gpumon.diagnosis.prefixes import Timestamp, timestamp_of
from gpumon.diagnosis.scan import LogBlock, blocks
from gpumon.diagnosis.unknown import ErrorForm

_MAX_EXCERPT: Final = 400
"""Characters of a log line that are shown."""
_MAX_VALUE: Final = 200
"""Characters of a value that a message contains."""
_CHUNK_BYTES: Final = 1 << 20
_MAX_LINES_BACK: Final = 256
"""Lines before an error in which the timestamp of its rank is searched; a traceback has no timestamps."""
_MAX_RANKS: Final = 1024
"""Ranks per error whose first line is compared with the earliest one."""
_WARNING: Final = re.compile(r"\b(?:WARN|WARNING)\b|Warning\b|\[W\d{3,4} |^W\d{4} ")


def explain(chunks: Iterable[bytes]) -> Explanation:
    """Finds every known error in a log, and the one that is the cause; or the last error, if it is unknown.

    An echo is not the cause if another error ends the log, known or not.

    Args:
        chunks: The log, in chunks of any size.
    """
    finder = _finder()
    tallies: dict[str, _Tally] = {}
    last = LastError(_timestamp)
    lines = 0
    for block in blocks(chunks):
        hits = finder.hits(block)
        for hit in hits:
            tallies.setdefault(hit.error.id, _Tally()).add(block, hit)
        last.add(block, {hit.position for hit in hits})
        lines = block.numbers[-1] if block.numbers else 0
    matches = sorted((tally.match() for tally in tallies.values()), key=lambda match: match.line)
    unknown = last.error
    if not matches or (unknown is not None and unknown.form <= ErrorForm.CRASH and _are_echoes(matches)):
        return Explanation(tuple(matches), lines, unknown, last.last_lines)
    cause = first_cause(matches)
    rest = (match for match in matches if match is not cause)
    is_later = unknown is not None and unknown.form <= ErrorForm.CRASH and unknown.line > cause.line
    return Explanation((replace(cause, is_cause=True), *rest), lines, unknown if is_later else None, last.last_lines)


def _are_echoes(matches: Iterable[Match]) -> bool:
    return all(match.error.is_echo for match in matches)


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
    return explain_oom(read_oom_file(content, name)) if is_oom_file(first) else explain(content)


@cache
def _finder() -> ErrorFinder:
    return ErrorFinder(ERRORS)


class _Tally:
    """All lines with one error. The match that is shown is the earliest one."""

    def __init__(self) -> None:
        self._first: Match | None = None
        self._ranks: set[int] = set()
        self._count = 0

    def add(self, block: LogBlock, hit: PatternHit) -> None:
        """Counts a line, and keeps its match if it is the earliest one.

        Of a rank that already has a match, later lines are only counted: a log may have the same error a million times.
        So are the lines of too many ranks.
        """
        rank = block.ranks[hit.position]
        is_new = rank is not None and rank not in self._ranks
        fails_first = self._first is not None and self._first.is_warning and not _is_warning(block, hit.position)
        if self._first is None or fails_first or (is_new and len(self._ranks) < _MAX_RANKS):
            match = _match(block, hit)
            self._first = match if self._first is None else first_cause([self._first, match])
        self._count += 1
        if rank is not None:
            self._ranks.add(rank)

    def match(self) -> Match:
        """The earliest match, with the number of lines and their ranks."""
        assert self._first is not None  # a tally is created only to add a line
        return replace(self._first, count=self._count, ranks=tuple(sorted(self._ranks)))


def _match(block: LogBlock, hit: PatternHit) -> Match:
    memory = read_memory_message(hit.text)
    values: dict[str, int | str] = {name: safe_text(text, _MAX_VALUE) for name, text in hit.line_match.groups.items()}
    return Match(
        hit.error,
        block.numbers[hit.position],
        safe_text(hit.line_match.line if len(hit.line_match.line) <= _MAX_EXCERPT else hit.text, _MAX_EXCERPT),
        rank=block.ranks[hit.position],
        timestamp=_timestamp(block, hit.position),
        is_warning=hit.error.is_warning or _is_warning(block, hit.position),
        values=values if memory is None else values | memory.sizes(),
        memory=memory,
    )


def _is_warning(block: LogBlock, position: int) -> bool:
    """Whether a line is a warning; Python prints a message that starts with a line end below the word "Warning:".

    A line that was split from a record of a JSON log has the level of that record, which its first line contains.
    """
    is_announced = position > 0 and block.lines[position - 1].rstrip().endswith("Warning:")
    record = bisect_left(block.numbers, block.numbers[position])
    return is_announced or any(_WARNING.search(block.lines[index]) is not None for index in {position, record})


def _timestamp(block: LogBlock, position: int) -> Timestamp | None:
    """The timestamp of a line, or that of the last line of the same rank before it."""
    timestamps = (timestamp_of(line) for line in _lines_back(block, position))
    return next((timestamp for timestamp in timestamps if timestamp is not None), None)


def _lines_back(block: LogBlock, position: int) -> Iterator[str]:
    rank = block.ranks[position]
    for earlier in range(position, max(-1, position - _MAX_LINES_BACK), -1):
        if rank is None or block.ranks[earlier] in {rank, None}:
            yield block.lines[earlier]
