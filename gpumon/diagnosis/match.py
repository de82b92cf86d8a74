"""Finds known errors in the blocks of a log.

The letters of all lines are searched for the needles of all patterns at once; patterns are tried only on the lines
where a needle occurs. A log without errors therefore costs no more than the search for some pieces of words.

The work per line is bounded, whatever a log contains: a needle counts once per line, a pattern is tried only where all
texts that it requires are present, a limited number of patterns is tried, and equal lines are read once per block.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Final, NamedTuple

from gpumon.diagnosis.candidate import (
    MAX_MATCH,
    CasedText,
    LineMatch,
    PreparedPattern,
    cased,
    distinct,
    matches_in_line,
)
from gpumon.diagnosis.known import KnownError
from gpumon.diagnosis.needles import NeedleIndex
from gpumon.diagnosis.patterns import dense, folded, letter_counts
from gpumon.diagnosis.scan import LogBlock, RankLines

_REACH_LINES: Final = 16
"""Lines before and after the needle in which the rest of a wrapped message is searched."""
_REACH_CHARACTERS: Final = 2 * MAX_MATCH
"""Characters of these lines after which the search ends."""
_MAX_TEXT: Final = 16384
"""Characters of the text from an error on."""
_MAX_JOINS: Final = 32
"""Maximum number of times per block and needle that the lines around a needle are joined: a log may be full of it."""
_MIN_JOINS: Final = 2
"""The same, if the block is full of many needles."""
_MAX_JOINS_PER_BLOCK: Final = 1024
"""The joins that the needles of a block share, as far as each has its minimum."""
_MAX_RESULTS: Final = 4096
"""Lines per block whose errors are kept for equal lines."""
_MAX_NEEDLES: Final = 16
"""Maximum number of needles per line that are used, the longest ones; a line with more is a list of errors."""


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


class _LineResult(NamedTuple):
    """The errors in a single line.

    Attributes:
        matches: The errors, from left to right.
        unmatched: The patterns whose needle is in the line, and whose match may continue on other lines.
    """

    matches: tuple[LineMatch, ...]
    unmatched: tuple[PreparedPattern, ...]


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


class ErrorFinder:
    """Finds known errors.

    Args:
        errors: The catalogue; of two errors that match a text equally well, the earlier one wins.
    """

    def __init__(self, errors: Sequence[KnownError]) -> None:
        self._candidates: dict[bytes, list[PreparedPattern]] = defaultdict(list)
        for order, error in enumerate(errors):
            for pattern in error.patterns:
                candidate = PreparedPattern(order, error, pattern)
                self._candidates[candidate.letters].append(candidate)
        self._by_literal = {
            needle: [(candidate.first_literal, candidate) for candidate in candidates]
            for needle, candidates in self._candidates.items()
        }
        self._index = NeedleIndex(self._candidates)

    def hits(self, block: LogBlock) -> list[PatternHit]:
        """The errors in a block, in the order of its lines and from left to right."""
        lines = block.by_rank
        needles = self._index.present(block.letters)
        if not needles:
            return []
        single_rows, broken_rows = _rows_with_needles(needles, block.letters, lines)
        wrapped = _WrappedSearch(lines, max(_MIN_JOINS, min(_MAX_JOINS, _MAX_JOINS_PER_BLOCK // len(needles))))
        hits: dict[int, list[PatternHit]] = {}
        results: dict[tuple[str, str], _LineResult] = {}
        for row, row_needles in single_rows.items():
            position = lines.positions[row]
            text, complete = lines.texts[row], block.lines[position]
            # Without unmatched patterns, the prefix of the line has no influence.
            result = results.get((text, "")) or results.get((text, complete))
            if result is None:
                result = self._line_result(row_needles, text.strip(), complete.strip(), wrapped)
                if len(results) < _MAX_RESULTS:
                    results[text, complete if result.unmatched or not result.matches else ""] = result
            if result.matches:
                hits[row] = [PatternHit(line_match, position, "", lines, row + 1) for line_match in result.matches]
            if result.unmatched:
                wrapped.search(result.unmatched, row, row)
        for (first, last), row_needles in broken_rows.items():
            needles = [needle for needle in _longest(row_needles) if not wrapped.is_exhausted(needle)]
            if needles:
                wrapped.search(self._with_core(needles, "".join(lines.texts[first : last + 1])), first, last)
        if wrapped.spans:
            hits |= _without_overlaps(hits, wrapped.spans)
        return sorted(
            (hit for row_hits in hits.values() for hit in row_hits if block.first <= hit.position < block.end),
            key=lambda hit: hit.position,
        )

    def _line_result(
        self, needles: Sequence[bytes], text: str, complete: str, wrapped: "_WrappedSearch"
    ) -> _LineResult:
        """The errors in a line, which is given without and with prefixes."""
        used = _longest(needles)
        lower = folded(complete)
        possible = [candidate for needle in used for literal, candidate in self._by_literal[needle] if literal in lower]
        matches = list(matches_in_line(possible, text, complete)) if possible else []
        matched = {match.candidate.letters for match in matches}
        rest = [needle for needle in used if needle not in matched and not wrapped.is_exhausted(needle)]
        return _LineResult(distinct(matches), self._with_core(rest, text) if rest else ())

    def _with_core(self, needles: Sequence[bytes], text: str) -> tuple[PreparedPattern, ...]:
        """The patterns with one of these needles, if the text has the needle with its punctuation."""
        dense_text = cased(dense(text))
        candidates = (candidate for needle in needles for candidate in self._candidates[needle])
        return tuple(candidate for candidate in candidates if candidate.has_core(dense_text))


def _longest(needles: Sequence[bytes]) -> Sequence[bytes]:
    return sorted(needles, key=len, reverse=True)[:_MAX_NEEDLES] if len(needles) > _MAX_NEEDLES else needles


def _rows_with_needles(
    needles: Iterable[bytes], letters: bytes, lines: RankLines
) -> tuple[Mapping[int, list[bytes]], Mapping[tuple[int, int], list[bytes]]]:
    """The lines that contain needles, and the first and last of the lines over which needles are broken."""
    ends = list(accumulate(letter_counts(lines.texts)))
    single_rows: dict[int, list[bytes]] = defaultdict(list)
    broken_rows: dict[tuple[int, int], list[bytes]] = defaultdict(list)
    for needle in needles:
        size = len(needle)
        start = letters.find(needle)
        while start >= 0:
            row = bisect_right(ends, start)
            row_end = ends[row]
            end = start + size
            if end <= row_end:
                single_rows[row].append(needle)
                # The same patterns would match at another occurrence within this line.
                end = max(end, row_end - size + 1)
            else:
                last = bisect_left(ends, end, row)
                if last in lines.of_rank(row):
                    broken_rows[row, last].append(needle)
            start = letters.find(needle, end)
    return single_rows, broken_rows


class _WrappedSearch:
    """Searches the lines around needles for wrapped messages, a limited number of times.

    Args:
        lines: The lines.
        max_joins: How often the lines around the same needle may be joined.
    """

    def __init__(self, lines: RankLines, max_joins: int) -> None:
        self.spans: list[_Span] = []
        self._lines = lines
        self._max_joins = max_joins
        self._joins: Counter[bytes] = Counter()

    def is_exhausted(self, needle: bytes) -> bool:
        """Whether the lines around a needle were joined as often as allowed."""
        return self._joins[needle] >= self._max_joins

    def search(self, candidates: Sequence[PreparedPattern], first: int, last: int) -> None:
        """Searches around the lines with a needle, from the first one to the last one."""
        rest = [candidate for candidate in candidates if not self.is_exhausted(candidate.letters)]
        if rest:
            self._joins.update({candidate.letters for candidate in rest})
            self.spans += _wrapped_spans(self._lines, rest, range(first, last + 1))


def _wrapped_spans(lines: RankLines, candidates: Sequence[PreparedPattern], rows: range) -> Iterator[_Span]:
    """The patterns in the joined lines around a needle; a match within a single line is not a wrapped message."""
    begin_row, ends, text = _joined(lines, rows)
    dense_text = cased(dense(text.written))
    for candidate in candidates:
        if not candidate.has_dense_literals(dense_text):
            continue
        for match in candidate.wrapped_matches(text):
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


def _joined(lines: RankLines, rows: range) -> _Joined:
    """The lines within reach of a needle."""
    rank = lines.of_rank(rows.start)
    texts = lines.texts
    before = [text.strip() for text in texts[max(rank.start, rows.start - _REACH_LINES) : rows.start]]
    before = before[-_reach(before[::-1]) :]
    end = min(rank.stop, rows.stop + _REACH_LINES)
    after = [text.strip() for text in texts[rows.stop : end]]
    pieces = [*before, *(text.strip() for text in texts[rows.start : rows.stop]), *after[: _reach(after)]]
    return _Joined(rows.start - len(before), list(accumulate(map(len, pieces))), cased("".join(pieces)))


def _reach(lines: Sequence[str]) -> int:
    """The number of lines up to the one that completes the reach of a match."""
    return bisect_left(list(accumulate(map(len, lines))), _REACH_CHARACTERS) + 1


def _without_overlaps(
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
    start = hit.line_match.start - len(hit.line_match.line)
    return _Span(range(row, row + 1), (row, start), (row, start + hit.line_match.length), hit)
