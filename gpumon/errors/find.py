"""Finds known errors in the blocks of a log.

The letters of all lines are searched for the needles of all patterns at once; patterns are tried only on the lines
where a needle occurs. A log without errors therefore costs no more than the search for some pieces of words.

The work per line is bounded, whatever a log contains: a needle counts once per line, a pattern is tried only where all
texts that it requires are present, a limited number of patterns is tried, and equal lines are read once per block.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import Final, NamedTuple

from gpumon.errors.candidate import LineMatch, PatternHit, PreparedPattern, cased, hit_in_line
from gpumon.errors.load import ErrorCatalogue
from gpumon.errors.needles import NeedleIndex
from gpumon.errors.patterns import dense, letter_counts
from gpumon.errors.scan import LogBlock, RankLines
from gpumon.errors.wrapped_search import WrappedSearch

_MAX_RESULTS: Final = 4096
"""Lines per block whose errors are kept for equal lines."""
_MAX_NEEDLES: Final = 16
"""Maximum number of needles per line that are used, the longest ones; a line with more is a list of errors."""


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
        for row in sorted(single_rows):
            text, complete = lines.texts[row], block.lines[lines.positions[row]]
            result = results.get((text, "")) or results.get((text, complete))
            if result is None:
                result = self._line_result(single_rows[row], text.strip(), complete.strip(), wrapped.exhausted)
                if len(results) < _MAX_RESULTS:
                    # A prefix has no influence if all errors are in the line without it.
                    is_same = result.matches and all(match.line == text.strip() for match in result.matches)
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
        line, whole = cased(text), cased(complete)
        matches: list[LineMatch] = []
        for pattern in chain.from_iterable(map(self._patterns_of, used)):
            first = next(((match, some) for some in (line, whole) if (match := pattern.search(some)) is not None), None)
            if first is not None:
                matches.append(LineMatch(pattern, first[0], first[1].written))
        matched = {match.candidate.letters for match in matches}
        rest = [needle for needle in used if needle not in matched and needle not in exhausted]
        return _LineResult(matches, self._with_core(rest, text) if rest else {})

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
