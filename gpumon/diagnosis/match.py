"""Finds known errors in the blocks of a log.

The letters of all lines of a rank are searched for the needles of all patterns at once; patterns are tried only on the
lines where a needle occurs. A log without errors therefore costs no more than the search for some words.

The work per line is bounded, whatever a log contains: a needle counts once per line, a pattern is tried only where all
texts that it requires are present, and a limited number of patterns is tried.
"""

import re
import string
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import Final, NamedTuple

from gpumon.diagnosis.known import KnownError, Pattern
from gpumon.diagnosis.patterns import dense, exact, letter_counts, literals, shared_parts, squeezed, wrapped
from gpumon.diagnosis.prefixes import without_prefix
from gpumon.diagnosis.scan import LogBlock, RankLines

_REACH_LINES: Final = 16
"""Lines before and after the needle in which the rest of a wrapped message is searched."""
MAX_MATCH: Final = 512
"""Maximum number of characters that a pattern of the catalogue matches, apart from spaces in joined lines."""
_REACH_CHARACTERS: Final = 2 * MAX_MATCH
"""Characters of these lines after which the search ends."""
_MAX_TEXT: Final = 16384
"""Characters of the text from an error on."""
_MAX_JOINS: Final = 32
"""Maximum number of times per block and needle that the lines around a needle are joined: a log may be full of it."""
_MAX_NEEDLES: Final = 16
"""Maximum number of needles per line that are used, the longest ones; a line with more is a list of errors."""


class PatternHit(NamedTuple):
    """A known error at a position of a block.

    Attributes:
        error: The entry of the catalogue.
        position: The index of its first line in the block.
        groups: The named groups of the pattern that are not empty.
        line: The line with the error, broken lines joined.
        start: Where in this line the error starts.
        following: The lines after this line.
        length: Number of characters that the pattern matched.
    """

    error: KnownError
    position: int
    groups: Mapping[str, str]
    line: str
    start: int
    following: Sequence[str]
    length: int

    @property
    def text(self) -> str:
        """The text from the error on, broken lines joined, for values that follow the error."""
        return (self.line[self.start :] + "".join(line.strip() for line in self.following))[:_MAX_TEXT]


@dataclass(frozen=True)
class _Candidate:
    """A pattern of the catalogue.

    Attributes:
        order: The index of its error in the catalogue.
        error: Its error.
        pattern: The pattern.
    """

    order: int
    error: KnownError
    pattern: Pattern

    @cached_property
    def letters(self) -> bytes:
        """The letters of its needle."""
        return squeezed(self.pattern.needle)

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """The texts that every match in a line contains."""
        return literals(self.pattern).texts

    @cached_property
    def dense_literals(self) -> tuple[str, ...]:
        """The texts that every match in joined lines contains, once whitespace is removed."""
        return tuple(map(dense, self.literals))

    @cached_property
    def dense_core(self) -> str:
        """The needle without whitespace, from its first to its last letter; the lines of the letters contain it."""
        return dense(self.pattern.needle).strip(string.punctuation + string.digits)

    @cached_property
    def _anchor(self) -> tuple[str, int]:
        """A text that every match in a line contains, and how many characters before it a match may start."""
        head = literals(self.pattern).head
        return (head, 0) if head else (self.pattern.needle, MAX_MATCH)

    def search(self, line: str) -> re.Match[str] | None:
        """The first match in a line. What is far in front of the first required text is skipped."""
        text, lead = self._anchor
        start = line.find(text)
        return None if start < 0 else exact(self.pattern.regex).search(line, max(0, start - lead))


class _Joined(NamedTuple):
    """Consecutive lines of a rank, joined.

    Attributes:
        begin: The first line.
        ends: Where each of the lines ends.
        text: The lines, joined without separators.
        following: The lines after them.
    """

    begin: int
    ends: Sequence[int]
    text: str
    following: Sequence[str]


class ErrorFinder:
    """Finds known errors.

    Args:
        errors: The catalogue; of two errors that match a line equally well, the earlier one wins.
    """

    def __init__(self, errors: Sequence[KnownError]) -> None:
        self._candidates: dict[bytes, list[_Candidate]] = defaultdict(list)
        for order, error in enumerate(errors):
            for pattern in error.patterns:
                candidate = _Candidate(order, error, pattern)
                self._candidates[candidate.letters].append(candidate)
        self._parts = shared_parts(self._candidates)

    def hits(self, block: LogBlock) -> list[PatternHit]:
        """The errors in a block, in the order of its lines, at most one per line."""
        best: dict[int, tuple[tuple[bool, int, int], PatternHit]] = {}
        for rank_lines in block.by_rank():
            for candidate, hit in self._rank_hits(block, rank_lines):
                rank = (not hit.error.is_echo, hit.length, -candidate.order)
                if block.first <= hit.position < block.end and (
                    hit.position not in best or best[hit.position][0] < rank
                ):
                    best[hit.position] = (rank, hit)
        return [best[position][1] for position in sorted(best)]

    def _rank_hits(self, block: LogBlock, rank_lines: RankLines) -> Iterator[tuple[_Candidate, PatternHit]]:
        joins: Counter[bytes] = Counter()
        for rows, needles in self._needles(block, rank_lines).items():
            used = sorted(needles, key=len, reverse=True)[:_MAX_NEEDLES] if len(needles) > _MAX_NEEDLES else needles
            candidates = list(chain.from_iterable(map(self._candidates.__getitem__, used)))
            hits = list(_line_hits(block, rank_lines, candidates, rows.start)) if len(rows) == 1 else []
            yield from hits
            matched = {candidate.letters for candidate, _ in hits}
            rest = {needle for needle in used if needle not in matched and joins[needle] < _MAX_JOINS}
            if rest:
                text = dense("".join(rank_lines.texts[rows.start : rows.stop]))
                rest_candidates = [c for c in candidates if c.letters in rest and c.dense_core in text]
                joins.update({candidate.letters for candidate in rest_candidates})
                yield from _wrapped_hits(rank_lines, rest_candidates, rows)

    def _needles(self, block: LogBlock, rank_lines: RankLines) -> Mapping[range, list[bytes]]:
        """The lines that the block evaluates and that contain needles, each once, with these needles.

        A needle that is broken over several lines has all of these lines.
        """
        flat = squeezed("".join(rank_lines.texts))
        parts = (part for part in self._parts if part in flat)
        needles = [needle for part in parts for needle in self._parts[part] if needle in flat]
        rows: dict[range, list[bytes]] = defaultdict(list)
        if needles:
            ends = list(accumulate(letter_counts(rank_lines.texts)))
            first = bisect_left(rank_lines.positions, block.first)
            last = bisect_left(rank_lines.positions, block.end) + _REACH_LINES
            begin, end = ends[first - 1] if first else 0, ends[min(last, len(ends)) - 1]
            for needle in needles:
                for needle_rows in _occurrences(needle, flat, ends, begin, end):
                    rows[needle_rows].append(needle)
        return rows


def _occurrences(needle: bytes, flat: bytes, ends: Sequence[int], begin: int, end: int) -> Iterator[range]:
    """The lines that contain a needle between two positions in the letters of all lines."""
    more = len(needle) - 1
    start = flat.find(needle, max(0, begin - more), end + more)
    while start >= 0:
        first = bisect_right(ends, start)
        yield range(first, bisect_right(ends, start + more, first) + 1)
        # The same patterns would match at another occurrence within this line.
        start = flat.find(needle, max(start + len(needle), ends[first] - more), end + more)


def _line_hits(
    block: LogBlock, rank_lines: RankLines, candidates: Iterable[_Candidate], row: int
) -> Iterator[tuple[_Candidate, PatternHit]]:
    """The patterns in a single line, without the prefix of a logger or else with it."""
    position = rank_lines.positions[row]
    complete = block.lines[position].strip()
    possible = [c for c in candidates if c.literals[0] in complete and all(map(complete.__contains__, c.literals))]
    if not possible:
        return
    text = rank_lines.texts[row].strip()
    following = rank_lines.texts[row + 1 : row + _REACH_LINES]
    for candidate in possible:
        for line in _forms(text, complete):
            match = candidate.search(line)
            if match is not None:
                yield candidate, _hit(candidate, position, match, line, start=match.start(), following=following)
                break


def _forms(text: str, complete: str) -> Iterator[str]:
    """A line without its prefix, with it, and without what looks like a prefix."""
    yield text
    if complete != text:
        yield complete
    single = without_prefix(complete)
    if single not in {text, complete}:
        yield single


def _wrapped_hits(
    rank_lines: RankLines, candidates: Sequence[_Candidate], rows: range
) -> Iterator[tuple[_Candidate, PatternHit]]:
    """The patterns in the joined lines around a needle; a match within a single line is not a wrapped message."""
    if not candidates:
        return
    joined = _joined(rank_lines.texts, rows)
    text = dense(joined.text)
    for candidate in candidates:
        if not all(map(text.__contains__, candidate.dense_literals)):
            continue
        for match in wrapped(candidate.pattern.regex).finditer(joined.text):
            first, last = bisect_right(joined.ends, match.start()), bisect_right(joined.ends, match.end() - 1)
            if first != last and joined.begin + first < rows.stop and joined.begin + last >= rows.start:
                begin = joined.ends[first - 1] if first else 0
                line, start = joined.text[begin : match.end()], match.start() - begin
                following = [joined.text[match.end() :], *joined.following]
                position = rank_lines.positions[joined.begin + first]
                yield candidate, _hit(candidate, position, match, line, start=start, following=following)
                break


def _joined(texts: Sequence[str], rows: range) -> _Joined:
    """The lines within reach of a needle."""
    before = [text.strip() for text in texts[max(0, rows.start - _REACH_LINES) : rows.start]]
    before = before[-_reach(before[::-1]) :]
    after = [text.strip() for text in texts[rows.stop : rows.stop + _REACH_LINES]]
    following = texts[rows.stop + _reach(after) : rows.stop + _REACH_LINES]
    pieces = [*before, *(text.strip() for text in texts[rows.start : rows.stop]), *after[: _reach(after)]]
    return _Joined(rows.start - len(before), list(accumulate(map(len, pieces))), "".join(pieces), following)


def _reach(lines: Sequence[str]) -> int:
    """The number of lines up to the one that completes the reach of a match."""
    return bisect_left(list(accumulate(map(len, lines))), _REACH_CHARACTERS) + 1


def _hit(
    candidate: _Candidate, position: int, match: re.Match[str], line: str, *, start: int, following: Sequence[str]
) -> PatternHit:
    groups = {name: text for name, text in match.groupdict().items() if text}
    return PatternHit(candidate.error, position, groups, line, start, following, match.end() - match.start())
