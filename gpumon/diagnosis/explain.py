"""Reads a log as a stream and says which known errors it has; how long the log is does not matter."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Final

from gpumon.core.text import safe_text
from gpumon.diagnosis.catalogue import ERRORS
from gpumon.diagnosis.cause import first_cause
from gpumon.diagnosis.explanation import Explanation, Match
from gpumon.diagnosis.match import Finder, Hit
from gpumon.diagnosis.memory_message import read_memory_message
from gpumon.diagnosis.oom import explain_oom
from gpumon.diagnosis.oom_file import is_oom_file, read_oom_file
from gpumon.diagnosis.prefixes import Moment, moment_of
from gpumon.diagnosis.scan import Block, blocks

_EXCERPT: Final = 400
_FIGURE: Final = 200
_PIECE: Final = 1 << 20
_LOOK_BACK: Final = 256
"""Lines before an error in which the time of its rank is looked for; a traceback has none of its own."""
_WARNING: Final = re.compile(r"\b(?:WARN|WARNING)\b|Warning\b|\[W\d{3,4} |^W\d{4} ")


def explain(chunks: Iterable[bytes]) -> Explanation:
    """Finds every known error in a log, and the first cause.

    Args:
        chunks: The log, in pieces of any size.
    """
    finder = _finder()
    tallies: dict[str, _Tally] = {}
    lines = 0
    for block in blocks(chunks):
        for hit in finder.hits(block):
            tallies.setdefault(hit.error.id, _Tally()).add(block, hit)
        lines = block.numbers[-1] if block.numbers else 0
    matches = [tally.match() for tally in tallies.values()]
    if not matches:
        return Explanation((), lines)
    cause = first_cause(matches)
    rest = sorted((match for match in matches if match is not cause), key=lambda match: match.line)
    return Explanation((replace(cause, is_cause=True), *rest), lines)


def explain_text(text: str) -> Explanation:
    """The same for a text that is there already, such as one that was pasted."""
    data = text.encode("utf-8", "replace")
    return explain(data[start : start + _PIECE] for start in range(0, len(data), _PIECE))


def explain_source(pieces: Iterator[bytes], name: str) -> Explanation:
    """The same for what may be a log or a file that a probe has left on running out of memory.

    Args:
        pieces: What is read, unpacked.
        name: What it is called in a complaint.

    Raises:
        CommandError: It is such a file, and cannot be read.
    """
    first = next(pieces, b"")
    whole = chain((first,), pieces)
    return explain_oom(read_oom_file(whole, name)) if is_oom_file(first) else explain(whole)


@cache
def _finder() -> Finder:
    return Finder(ERRORS)


class _Tally:
    """All lines with one error; the first of them in time is the one that is told."""

    def __init__(self) -> None:
        self._first: Match | None = None
        self._ranks: set[int] = set()
        self._count = 0

    def add(self, block: Block, hit: Hit) -> None:
        """Counts a line, and keeps it if it is the first."""
        rank = block.ranks[hit.place]
        is_new = rank is not None and rank not in self._ranks
        fails_first = self._first is not None and self._first.is_warning and not _is_warning(block, hit.place)
        if self._first is None or is_new or fails_first:
            found = _match(block, hit)
            self._first = found if self._first is None else first_cause([self._first, found])
        self._count += 1
        if rank is not None:
            self._ranks.add(rank)

    def match(self) -> Match:
        """What was found, with how often and where."""
        assert self._first is not None  # one is made only to add to it
        return replace(self._first, count=self._count, ranks=tuple(sorted(self._ranks)))


def _match(block: Block, hit: Hit) -> Match:
    memory = read_memory_message(hit.text)
    figures: dict[str, int | str] = {name: safe_text(text, _FIGURE) for name, text in hit.groups.items()}
    return Match(
        hit.error,
        block.numbers[hit.place],
        safe_text(hit.line if len(hit.line) <= _EXCERPT else hit.text, _EXCERPT),
        rank=block.ranks[hit.place],
        moment=_moment(block, hit.place),
        is_warning=_is_warning(block, hit.place),
        figures=figures if memory is None else figures | memory.figures(),
        memory=memory,
    )


def _is_warning(block: Block, place: int) -> bool:
    """Whether a line only warns; Python puts a message that begins with a line end below the word."""
    announced = place > 0 and block.lines[place - 1].rstrip().endswith("Warning:")
    return announced or _WARNING.search(block.lines[place]) is not None


def _moment(block: Block, place: int) -> Moment | None:
    """When a line was written: its own time, or that of the last line before it of the same rank."""
    return next((found for line in _lines_back(block, place) if (found := moment_of(line)) is not None), None)


def _lines_back(block: Block, place: int) -> Iterator[str]:
    rank = block.ranks[place]
    for before in range(place, max(-1, place - _LOOK_BACK), -1):
        if rank is None or block.ranks[before] in {rank, None}:
            yield block.lines[before]
