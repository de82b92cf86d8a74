"""Searches for messages that terminals, loggers or copying have broken over lines, a limited number of times."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from gpumon.errors.candidate import MAX_MATCH, REACH_LINES, CasedText, LineMatch, PatternHit, PreparedPattern, cased
from gpumon.errors.patterns import dense
from gpumon.errors.scan import RankLines

_END_LINES: Final = 2
"""Lines after the needle at whose ends a message may end that must end a line."""
_REACH_CHARACTERS: Final = 2 * MAX_MATCH
"""Characters of the lines around a needle after which the search ends."""
_MAX_JOINS: Final = 32
"""Maximum number of times per block and needle that the lines around a needle are joined: a log may be full of it.

A line longer than the reach counts several times.
"""
_MIN_JOINS: Final = 2
"""The same, if the block is full of many needles."""
_MAX_JOINS_PER_BLOCK: Final = 1024
"""The joins that the needles of a block share, as far as each has its minimum."""


class _Joined(NamedTuple):
    """Consecutive lines of a rank, joined.

    Attributes:
        dense: The text without whitespace.
    """

    begin: int
    ends: Sequence[int]
    text: CasedText
    dense: CasedText


class WrappedSearch:
    """Searches the lines around needles for wrapped messages, a limited number of times."""

    def __init__(self, lines: RankLines, needles: int) -> None:
        self.hits: list[PatternHit] = []
        self.exhausted: set[bytes] = set()
        """The needles around which the lines were joined as often as allowed."""
        self._lines = lines
        self._max_joins = max(_MIN_JOINS, min(_MAX_JOINS, _MAX_JOINS_PER_BLOCK // needles))
        self._joins: Counter[bytes] = Counter()

    def search(self, patterns: Mapping[bytes, Sequence[PreparedPattern]], rows: range) -> None:
        """Searches around the lines with needles."""
        joined: _Joined | None = None
        for needle in patterns.keys() - self.exhausted:
            joined = joined or _joined(self._lines, rows)
            self._joins[needle] += 1 + len(self._lines.texts[rows.start]) // _REACH_CHARACTERS
            if self._joins[needle] >= self._max_joins:
                self.exhausted.add(needle)
            for pattern in patterns[needle]:
                hit = next(_hits(self._lines, pattern, rows, joined), None)
                if hit is not None:
                    self.hits.append(hit)


def _hits(lines: RankLines, pattern: PreparedPattern, rows: range, joined: _Joined) -> Iterator[PatternHit]:
    """The pattern in joined lines; a match within a single line is not a wrapped message."""
    ends, text = joined.ends, joined.text.written
    first, last = rows.start - joined.begin, rows.stop - joined.begin
    if pattern.ends_line:
        parts = [(max(0, end - _REACH_CHARACTERS), end) for end in ends[first : last + _END_LINES]]
    else:
        start = ends[first - 1] if first else 0
        parts = [(max(0, start - _REACH_CHARACTERS), ends[last - 1] + _REACH_CHARACTERS)]
    for match in pattern.wrapped_matches(joined.text, joined.dense, parts):
        first, last = bisect_right(ends, match.start()), bisect_right(ends, match.end() - 1)
        if first != last and joined.begin + first < rows.stop and joined.begin + last >= rows.start:
            begin = ends[first - 1] if first else 0
            yield PatternHit(
                LineMatch(pattern, match, text[begin : match.end()], begin),
                lines,
                (joined.begin + first, match.start() - ends[first]),
                (joined.begin + last, match.end() - ends[last]),
                joined.begin + len(ends),
                text[match.end() :],
            )


def _joined(lines: RankLines, rows: range) -> _Joined:
    """The lines within reach of a needle."""
    rank, texts = lines.of_rank(rows.start), lines.texts
    before = list(map(str.strip, texts[max(rank.start, rows.start - REACH_LINES) : rows.start]))
    before = before[-_reach(before[::-1]) :]
    after = list(map(str.strip, texts[rows.stop : min(rank.stop, rows.stop + REACH_LINES)]))
    pieces = [*before, *map(str.strip, texts[rows.start : rows.stop]), *after[: _reach(after)]]
    text = "".join(pieces)
    return _Joined(rows.start - len(before), list(accumulate(map(len, pieces))), cased(text), cased(dense(text)))


def _reach(lines: Sequence[str]) -> int:
    """The number of lines up to the one that completes the reach of a match."""
    return bisect_left(list(accumulate(map(len, lines))), _REACH_CHARACTERS) + 1
