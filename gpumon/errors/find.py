"""Finds known errors in the blocks of a log, also those that terminals, loggers or copying have broken over lines.

The letters of all lines are searched for the needles of all patterns at once; patterns are tried only on the lines
where a needle occurs. A log without errors therefore costs no more than the search for some pieces of words.

The work per line is bounded, whatever a log contains: a needle counts once per line, a pattern is tried only where all
texts that it requires are present, a limited number of patterns is tried, and equal lines are read once per block.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import Final, NamedTuple

from gpumon.errors.candidate import (
    MAX_MATCH,
    REACH_LINES,
    CasedText,
    LineMatch,
    PatternHit,
    PreparedPattern,
    cased,
    hit_in_line,
)  # fmt: skip
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.load import ErrorCatalogue
from gpumon.errors.needles import NeedleIndex
from gpumon.errors.patterns import dense, letter_counts
from gpumon.errors.scan import LogBlock, RankLines

_MAX_RESULTS: Final = 4096
"""Lines per block whose errors are kept for equal lines."""
_LONG_NUMBER: Final = lazy_pattern(r"0x[\da-fA-F]+|\d{4,}")
"""Addresses, times, and numbers of processes and lines."""
_MAX_NEEDLES: Final = 16
"""Maximum number of needles per line that are used, the longest ones; a line with more is a list of errors."""
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


class _LineResult(NamedTuple):
    """The errors in a single line.

    Attributes:
        unmatched: By needle, the patterns whose needle is in the line, and whose match may continue on other lines.
    """

    matches: Sequence[LineMatch]
    unmatched: Mapping[bytes, Sequence[PreparedPattern]]


class ErrorFinder:
    """Finds known errors.

    Args:
        catalogue: The known errors; of two that match a text equally well, the earlier one wins.
    """

    def __init__(self, catalogue: ErrorCatalogue) -> None:
        self._catalogue = catalogue
        self._ids = list(catalogue)
        self._index = NeedleIndex(catalogue.index["needles"])
        self._patterns: dict[bytes, Sequence[PreparedPattern]] = {}

    def hits(self, block: LogBlock) -> list[PatternHit]:
        """The errors in a block, in the order of its lines and from left to right."""
        lines = block.by_rank
        single_rows, broken_rows = _rows_with_needles(self._index.search(block.words), lines)
        if not single_rows and not broken_rows:
            return []
        wrapped = WrappedSearch(lines, len(set(chain.from_iterable((*single_rows.values(), *broken_rows.values())))))
        hits: list[PatternHit] = []
        results: dict[tuple[str, str], _LineResult] = {}
        alike: dict[str, Sequence[PreparedPattern]] = {}
        for row in sorted(single_rows):
            text, complete = lines.texts[row], block.lines[lines.positions[row]]
            result = results.get((text, "")) or results.get((text, complete))
            likeness = _LONG_NUMBER.sub("", text) if result is None else ""
            result = result or _result_alike(alike.get(likeness), text.strip())
            if result is None:
                result = self._line_result(single_rows[row], text.strip(), complete.strip(), wrapped.exhausted)
                # A prefix has no influence if all errors are in the line without it.
                is_same = result.matches and all(match.line == text.strip() for match in result.matches)
                if is_same and not result.unmatched and not self._test_numbers(single_rows[row]):
                    alike[likeness] = [match.candidate for match in result.matches]
                if len(results) < _MAX_RESULTS:
                    results[text, "" if is_same and not result.unmatched else complete] = result
            hits += [hit_in_line(match, lines, row) for match in result.matches]
            if result.unmatched:
                wrapped.search(result.unmatched, range(row, row + 1))
        for (first, last), needles in sorted(broken_rows.items()):
            usable = _longest([needle for needle in needles if needle not in wrapped.exhausted])
            if usable:
                rows = range(first, last + 1)
                wrapped.search(self._with_core(usable, "".join(lines.texts[first : last + 1])), rows)
        kept = (hit for hit in _without_overlaps([*wrapped.hits, *hits]) if block.first <= hit.position < block.end)
        return sorted(kept, key=attrgetter("position"))

    def _line_result(self, needles: Sequence[bytes], text: str, complete: str, exhausted: set[bytes]) -> _LineResult:
        """The errors in a line, which is given without and with prefixes."""
        used = _longest(needles)
        shown = [cased(text)] if text == complete else [cased(text), cased(complete)]
        matches: list[LineMatch] = []
        for pattern in chain.from_iterable(map(self._patterns_of, used)):
            first = next(((match, some) for some in shown if (match := pattern.search(some)) is not None), None)
            if first is not None:
                matches.append(LineMatch(pattern, first[0], first[1].written))
        matched = {match.candidate.letters for match in matches}
        rest = [needle for needle in used if needle not in matched and needle not in exhausted]
        return _LineResult(matches, self._with_core(rest, text) if rest else {})

    def _test_numbers(self, needles: Sequence[bytes]) -> bool:
        """Whether a pattern with one of these needles is about certain long numbers, such as codes of Windows."""
        patterns = chain.from_iterable(map(self._patterns_of, needles))
        return any(_LONG_NUMBER.search(pattern.pattern.regex) is not None for pattern in patterns)

    def _with_core(self, needles: Sequence[bytes], text: str) -> Mapping[bytes, Sequence[PreparedPattern]]:
        """The patterns with each of these needles, if the text has the needle with its punctuation."""
        dense_text = cased(dense(text))
        patterns = {
            needle: [pattern for pattern in self._patterns_of(needle) if pattern.has_core(dense_text)]
            for needle in needles
        }
        return {needle: some for needle, some in patterns.items() if some}

    def _patterns_of(self, needle: bytes) -> Sequence[PreparedPattern]:
        """The wordings with a needle, whose entries are read when it is met."""
        if needle not in self._patterns:
            places = self._index.places(needle)
            errors = [self._catalogue[self._ids[order]] for order in places[::2]]
            self._patterns[needle] = [
                PreparedPattern(order, error, error.wordings[number])
                for order, number, error in zip(places[::2], places[1::2], errors, strict=True)
            ]
        return self._patterns[needle]


def _result_alike(patterns: Sequence[PreparedPattern] | None, text: str) -> _LineResult | None:
    """The errors of a line that differs from an earlier one in long numbers only, if it has those of that one."""
    if patterns is None:
        return None
    line = cased(text)
    matches = [(pattern, pattern.search(line)) for pattern in patterns]
    same = [LineMatch(pattern, match, line.written) for pattern, match in matches if match is not None]
    return _LineResult(same, {}) if len(same) == len(patterns) else None


def _without_overlaps(hits: Iterable[PatternHit]) -> Iterator[PatternHit]:
    """The errors without those that overlap a better one, each once per line, from left to right.

    An echo counts only in a line without other errors.
    """
    by_row: dict[int, list[PatternHit]] = defaultdict(list)
    for hit in hits:
        for row in hit.rows:
            by_row[row].append(hit)
    kept: dict[int, list[PatternHit]] = defaultdict(list)
    crowded = {id(hit): hit for some in by_row.values() if len(some) > 1 for hit in some}
    for hit in sorted(crowded.values(), key=lambda hit: (hit.line_match.quality, -hit.start[1]), reverse=True):
        others = chain.from_iterable(kept[row] for row in hit.rows)
        beside = (other.error for other in kept[hit.start[0]] if other.start[0] == hit.start[0])
        if not any(other.start < hit.end and hit.start < other.end for other in others) and not any(
            error is hit.error or (hit.error.is_echo and not error.is_echo) for error in beside
        ):
            for row in hit.rows:
                kept[row].append(hit)
    for row, some in by_row.items():
        best = kept[row] if id(some[0]) in crowded else some
        yield from sorted((hit for hit in best if hit.start[0] == row), key=attrgetter("start"))


def _longest(needles: Sequence[bytes]) -> Sequence[bytes]:
    return sorted(needles, key=len, reverse=True)[:_MAX_NEEDLES] if len(needles) > _MAX_NEEDLES else needles


def _rows_with_needles(
    occurrences: Iterable[tuple[bytes, int]], lines: RankLines
) -> tuple[Mapping[int, list[bytes]], Mapping[tuple[int, int], list[bytes]]]:
    """The lines that contain needles, and the first and last of the lines of one rank over which needles are broken."""
    single: dict[int, list[bytes]] = defaultdict(list)
    broken: dict[tuple[int, int], list[bytes]] = defaultdict(list)
    ends = list(accumulate(letter_counts(lines.texts))) if occurrences else []
    row = 0
    for needle, start in occurrences:
        if ends[row] <= start:
            row = bisect_right(ends, start, row)
        if start + len(needle) <= ends[row]:
            if needle not in single[row]:  # the same patterns would match at another occurrence within this line
                single[row].append(needle)
        elif (last := bisect_left(ends, start + len(needle), row)) < lines.of_rank(row).stop:
            broken[row, last].append(needle)
    return single, broken
