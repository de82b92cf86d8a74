"""Searches for messages that terminals, loggers or copying have broken over lines, a limited number of times."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Final, NamedTuple

from gpumon.errors.candidate import MAX_MATCH, CasedText, LineMatch, PreparedPattern, cased
from gpumon.errors.entry import KnownError
from gpumon.errors.patterns import dense
from gpumon.errors.scan import RankLines

_REACH_LINES: Final = 24
"""Lines before and after the needle in which the rest of a wrapped message is searched."""
_END_LINES: Final = 2
"""Lines after the needle at whose ends a message may end that must end a line."""
_REACH_CHARACTERS: Final = 2 * MAX_MATCH
"""Characters of these lines after which the search ends."""
_MAX_TEXT: Final = 16384
"""Characters of the text from an error on."""
_MAX_JOINS: Final = 32
"""Maximum number of times per block and needle that the lines around a needle are joined: a log may be full of it.

A line longer than the reach counts several times.
"""
_MIN_JOINS: Final = 2
"""The same, if the block is full of many needles."""
_MAX_JOINS_PER_BLOCK: Final = 1024
"""The joins that the needles of a block share, as far as each has its minimum."""


class PatternHit(NamedTuple):
    """A known error at a position of a block.

    Attributes:
        line_match: The match and its line.
        position: The index of its first line in the block.
        rest: What follows the match in the joined lines.
        lines: The lines of the block.
        next_row: The index in them of the first line after those.
    """

    line_match: LineMatch
    position: int
    rest: str
    lines: RankLines
    next_row: int

    @property
    def error(self) -> KnownError:
        """The entry of the catalogue."""
        return self.line_match.candidate.error

    @property
    def text(self) -> str:
        """The text from the error on, broken lines joined, for values that follow the error."""
        end = min(self.next_row + _REACH_LINES, self.lines.of_rank(self.next_row - 1).stop)
        following = (text.strip() for text in self.lines.texts[self.next_row : end])
        return (self.line_match.line[self.line_match.start :] + self.rest + "".join(following))[:_MAX_TEXT]


class _Joined(NamedTuple):
    """Consecutive lines of a rank, joined.

    Attributes:
        begin: The first line.
        ends: Where each of the lines ends.
        text: The lines, joined without separators.
    """

    begin: int
    ends: Sequence[int]
    text: CasedText


class _Span(NamedTuple):
    """An error, and the text that it occupies.

    Attributes:
        rows: Its lines.
        start: Its first line, and where it starts relative to the end of this line.
        end: Its last line, and where it ends relative to the end of this line.
        hit: The error.
    """

    rows: range
    start: tuple[int, int]
    end: tuple[int, int]
    hit: PatternHit


class WrappedSearch:
    """Searches the lines around needles for wrapped messages, a limited number of times.

    Needles that are close to each other are searched together, because joining lines takes most of the time.

    Args:
        lines: The lines.
        needles: How many different needles they have.
    """

    def __init__(self, lines: RankLines, needles: int) -> None:
        self.exhausted: set[bytes] = set()
        """The needles around which the lines were joined as often as allowed."""
        self._spans: list[_Span] = []
        self._lines = lines
        self._max_joins = max(_MIN_JOINS, min(_MAX_JOINS, _MAX_JOINS_PER_BLOCK // needles))
        self._joins: Counter[bytes] = Counter()
        self._rows = range(0)
        self._fruitless: set[int] = set()
        """Hashes of joined lines and patterns without a match: equal lines are searched once."""
        self._patterns: dict[bytes, list[tuple[PreparedPattern, range]]] = {}
        """The patterns to search in these rows, by needle, and the rows of the needle."""

    def add(self, patterns: Mapping[bytes, Sequence[PreparedPattern]], first: int, last: int) -> None:
        """Searches around the lines with needles, from the first one to the last one, together with those around them.

        Args:
            patterns: The patterns of each needle.
            first: The first line with the needles.
            last: The last one.
        """
        needles = patterns.keys() - self.exhausted
        if not needles:
            return
        if not self._are_close(first, last) or not needles.isdisjoint(self._patterns):
            self._search()
            self._rows = range(first, last + 1)
        self._rows = range(self._rows.start, max(self._rows.stop, last + 1))
        weight = 1 + len(self._lines.texts[first]) // _REACH_CHARACTERS
        for needle in needles:
            self._patterns[needle] = [(pattern, range(first, last + 1)) for pattern in patterns[needle]]
            self._joins[needle] += weight
            if self._joins[needle] >= self._max_joins:
                self.exhausted.add(needle)

    def spans(self) -> Sequence[_Span]:
        """The messages around the needles that were added."""
        self._search()
        return self._spans

    def _are_close(self, first: int, last: int) -> bool:
        """Whether lines follow those that are to be searched, so that few lines are to be joined."""
        start = self._rows.start
        return (
            start <= first < start + _REACH_LINES
            and first in self._lines.of_rank(start)
            and sum(map(len, self._lines.texts[start : last + 1])) <= _REACH_CHARACTERS
        )

    def _search(self) -> None:
        if self._patterns:
            patterns = list(chain.from_iterable(self._patterns.values()))
            joined = _joined(self._lines, self._rows)
            places = ((id(pattern), rows.start - joined.begin, rows.stop - joined.begin) for pattern, rows in patterns)
            key = hash((joined.text.written, *joined.ends, *places))
            if key not in self._fruitless:
                before = len(self._spans)
                self._spans += _wrapped_spans(self._lines, patterns, self._rows, joined)
                if len(self._spans) == before:
                    self._fruitless.add(key)
            self._patterns.clear()


def _wrapped_spans(
    lines: RankLines, patterns: Iterable[tuple[PreparedPattern, range]], all_rows: range, joined: _Joined
) -> Iterator[_Span]:
    """The patterns in joined lines; a match within a single line is not a wrapped message.

    Args:
        lines: All lines.
        patterns: The patterns, each with the rows of its needle.
        all_rows: All of these rows.
        joined: The lines around them.
    """
    begin_row, ends, text = joined
    dense_text = cased(dense(text.written))
    windows = _windows(ends, range(all_rows.start - begin_row, all_rows.stop - begin_row))
    near = ends[all_rows.start - begin_row : all_rows.stop - begin_row + _END_LINES]
    line_ends = [(max(0, end - _REACH_CHARACTERS), end) for end in near]
    for candidate, rows in patterns:
        if not candidate.has_dense_literals(dense_text):
            continue
        parts = line_ends if candidate.ends_line else windows
        for match in chain.from_iterable(candidate.wrapped_matches(text, *part) for part in parts):
            first, last = bisect_right(ends, match.start()), bisect_right(ends, match.end() - 1)
            first_row, last_row = begin_row + first, begin_row + last
            if first != last and first_row < rows.stop and last_row >= rows.start:
                begin = ends[first - 1] if first else 0
                line_match = LineMatch(candidate, match, text.written[begin : match.end()], begin)
                rest = text.written[match.end() :]
                yield _Span(
                    range(first_row, last_row + 1),
                    (first_row, match.start() - ends[first]),
                    (last_row, match.end() - ends[last]),
                    PatternHit(line_match, lines.positions[first_row], rest, lines, begin_row + len(ends)),
                )
                break


def _windows(ends: Sequence[int], rows: range) -> Sequence[tuple[int, int]]:
    """The parts of joined lines in which a message may be that continues from, in or behind certain lines.

    Args:
        ends: Where each of the joined lines ends.
        rows: The indexes of these lines.
    """
    windows: list[tuple[int, int]] = []
    for end in ends[max(0, rows.start - 1) : min(rows.stop, len(ends) - 1)]:
        start = max(0, end - _REACH_CHARACTERS)
        if windows and start <= windows[-1][1]:
            start = windows.pop()[0]
        windows.append((start, end + _REACH_CHARACTERS))
    return windows


def _joined(lines: RankLines, rows: range) -> _Joined:
    """The lines within reach of a needle."""
    rank = lines.of_rank(rows.start)
    texts = lines.texts
    before = list(map(str.strip, texts[max(rank.start, rows.start - _REACH_LINES) : rows.start]))
    before = before[-_reach(before[::-1]) :]
    after = list(map(str.strip, texts[rows.stop : min(rank.stop, rows.stop + _REACH_LINES)]))
    pieces = [*before, *map(str.strip, texts[rows.start : rows.stop]), *after[: _reach(after)]]
    return _Joined(rows.start - len(before), list(accumulate(map(len, pieces))), cased("".join(pieces)))


def _reach(lines: Sequence[str]) -> int:
    """The number of lines up to the one that completes the reach of a match."""
    return bisect_left(list(accumulate(map(len, lines))), _REACH_CHARACTERS) + 1


def without_overlaps(
    line_hits: Mapping[int, list[PatternHit]], wrapped: Sequence[_Span]
) -> dict[int, list[PatternHit]]:
    """The errors of the lines of wrapped messages, without those that overlap a better one."""
    rows = {row for span in wrapped for row in span.rows}
    spans = [*wrapped, *(_line_span(row, hit) for row in rows for hit in line_hits.get(row, ()))]
    kept: dict[int, list[_Span]] = {row: [] for row in rows}
    for span in sorted(spans, key=lambda span: span.hit.line_match.quality, reverse=True):
        others = chain.from_iterable(kept[row] for row in span.rows)
        first_line = (other.hit.error for other in kept[span.rows.start] if other.rows.start == span.rows.start)
        if not any(other.start < span.end and span.start < other.end for other in others) and not any(
            error is span.hit.error or (span.hit.error.is_echo and not error.is_echo) for error in first_line
        ):
            for row in span.rows:
                kept[row].append(span)
    return {
        row: [span.hit for span in sorted(spans, key=lambda span: span.start) if span.rows.start == row]
        for row, spans in kept.items()
    }


def _line_span(row: int, hit: PatternHit) -> _Span:
    start = hit.line_match.start_from_end
    return _Span(range(row, row + 1), (row, start), (row, start + hit.line_match.length), hit)
