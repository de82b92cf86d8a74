"""Finds known errors in the blocks of a log.

The letters of all lines are searched for the needles of all patterns at once; patterns are tried only on the lines
where a needle occurs. A log without errors therefore costs no more than the search for some pieces of words.

The work per line is bounded, whatever a log contains: a needle counts once per line, a pattern is tried only where all
texts that it requires are present, a limited number of patterns is tried, and equal lines are read once per block.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain
from operator import attrgetter
from typing import Final, NamedTuple

from gpumon.errors.candidate import CasedText, LineMatch, PreparedPattern, cased, distinct, matches_in_line
from gpumon.errors.load import ErrorCatalogue
from gpumon.errors.needles import NeedleIndex
from gpumon.errors.patterns import dense, folded, ignores_digits, letter_counts
from gpumon.errors.scan import LogBlock, RankLines
from gpumon.errors.wrapped_search import PatternHit, WrappedSearch, without_overlaps

_MAX_RESULTS: Final = 4096
"""Lines per block whose errors are kept for equal lines."""
_ZEROS: Final = str.maketrans("123456789", "0" * 9)
_MAX_NEEDLES: Final = 16
"""Maximum number of needles per line that are used, the longest ones; a line with more is a list of errors."""
_MAX_SHORT: Final = 1 << 16
"""Letters of a text for which the index of the needles, which takes long to make, is not needed."""
_MIN_PATTERNS: Final = 8
"""Patterns from which on looking a text up is faster than searching the line for the text of each."""
_MAX_PLACES: Final = 8
"""Places of a line where texts are looked up; in a line with more, the text of each pattern is searched."""


class _LiteralTable:
    """Patterns by the first text that each requires.

    Args:
        prefix: The text with which all these texts start.
        literals: The texts in lower case, each with its pattern.
    """

    def __init__(self, prefix: str, literals: Sequence[tuple[str, PreparedPattern]]) -> None:
        self._prefix = prefix
        self._literals = literals
        self._by_literal: dict[int, dict[str, list[PreparedPattern]]] = {}
        for literal, pattern in literals:
            self._by_literal.setdefault(len(literal), {}).setdefault(literal, []).append(pattern)

    @classmethod
    def of(cls, patterns: Sequence[PreparedPattern]) -> "_LiteralTable | None":
        """The table of some patterns, or None if their texts have no common start."""
        literals = [(folded(pattern.literals[0]), pattern) for pattern in patterns]
        prefix = _common_start([literal for literal, _ in literals])
        return cls(prefix, literals) if prefix else None

    def possible(self, lower: str) -> Sequence[PreparedPattern]:
        """The patterns whose text a line in lower case contains."""
        if lower.count(self._prefix) > _MAX_PLACES:
            return [pattern for literal, pattern in self._literals if literal in lower]
        patterns: list[PreparedPattern] = []
        start = lower.find(self._prefix)
        while start >= 0:
            for size, by_literal in self._by_literal.items():
                for pattern in by_literal.get(lower[start : start + size], ()):
                    if pattern not in patterns:
                        patterns.append(pattern)
            start = lower.find(self._prefix, start + 1)
        return patterns


class NeedlePatterns:
    """The patterns that have the same needle.

    Args:
        patterns: The patterns.
    """

    def __init__(self, patterns: Sequence[PreparedPattern]) -> None:
        self._patterns = patterns
        self._table = _LiteralTable.of(patterns) if len(patterns) >= _MIN_PATTERNS else None

    @cached_property
    def ignore_digits(self) -> bool:
        """Whether lines that differ in their digits only match the same patterns at the same places."""
        return all(ignores_digits(pattern.pattern.regex) for pattern in self._patterns)

    def possible(self, lower: str) -> Sequence[PreparedPattern]:
        """The patterns that a line in lower case may match; of many, those whose first required text it contains."""
        return self._patterns if self._table is None else self._table.possible(lower)

    def with_core(self, dense_text: CasedText) -> Sequence[PreparedPattern]:
        """The patterns whose needle is in lines without whitespace, with its punctuation."""
        return [pattern for pattern in self._patterns if pattern.has_core(dense_text)]


def _common_start(texts: Sequence[str]) -> str:
    """The text with which all texts start; two of them differ behind it."""
    first, last = min(texts), max(texts)
    size = next((index for index, letter in enumerate(first) if letter != last[index : index + 1]), len(first))
    return first[:size]


class _PatternsByNeedle(dict[bytes, NeedlePatterns]):
    """The patterns of the needles that were met."""

    def __init__(self, prepare: Callable[[bytes], NeedlePatterns]) -> None:
        super().__init__()
        self._prepare = prepare

    def __missing__(self, needle: bytes) -> NeedlePatterns:
        self[needle] = self._prepare(needle)
        return self[needle]


class _LineResult(NamedTuple):
    """The errors in a single line.

    Attributes:
        matches: The errors, from left to right.
        unmatched: By needle, the patterns whose needle is in the line, and whose match may continue on other lines.
    """

    matches: tuple[LineMatch, ...]
    unmatched: Mapping[bytes, Sequence[PreparedPattern]]


class ErrorFinder:
    """Finds known errors.

    Args:
        catalogue: The known errors; of two that match a text equally well, the earlier one wins.
    """

    def __init__(self, catalogue: ErrorCatalogue) -> None:
        self._catalogue = catalogue
        self._index = NeedleIndex(catalogue.needles)
        self._patterns = _PatternsByNeedle(self._prepared)

    def _prepared(self, needle: bytes) -> NeedlePatterns:
        """The wordings with a needle, whose entries are read now."""
        places = self._index.places(needle)
        return NeedlePatterns(
            [
                PreparedPattern(order, self._catalogue.at(order), self._catalogue.at(order).wordings[number])
                for order, number in zip(places[::2], places[1::2], strict=True)
            ]
        )

    def hits(self, block: LogBlock) -> list[PatternHit]:
        """The errors in a block, in the order of its lines and from left to right."""
        lines = block.by_rank
        single_rows, broken_rows = _rows_with_needles(self._index.search(block.words), lines)
        if not single_rows and not broken_rows:
            return []
        wrapped = WrappedSearch(lines, len(set(chain.from_iterable((*single_rows.values(), *broken_rows.values())))))
        hits: dict[int, list[PatternHit]] = {}
        results: dict[tuple[str, str], _LineResult] = {}
        of_lines: dict[str, _LineResult] = {}
        of_texts: dict[str, _LineResult] = {}
        for row in sorted(single_rows):
            position = lines.positions[row]
            text, complete = lines.texts[row], block.lines[position]
            equal = of_lines if text is complete else of_texts
            result = equal.get(text)
            if result is None:
                result = self._line_result(single_rows[row], text, complete, results, wrapped)
                if len(equal) < _MAX_RESULTS and (text is complete or _is_independent(text.strip(), result)):
                    equal[text] = result
            if result.matches:
                hits[row] = [PatternHit(line_match, position, "", lines, row + 1) for line_match in result.matches]
            if result.unmatched and not wrapped.exhausted.issuperset(result.unmatched):
                wrapped.add(result.unmatched, row, row)
        for (first, last), needles in sorted(broken_rows.items()):
            usable = _longest([needle for needle in needles if needle not in wrapped.exhausted])
            if usable:
                wrapped.add(self._with_core(usable, "".join(lines.texts[first : last + 1])), first, last)
        spans = wrapped.spans()
        if spans:
            hits |= without_overlaps(hits, spans)
        evaluated = [hit for hit in chain.from_iterable(hits.values()) if block.first <= hit.position < block.end]
        return sorted(evaluated, key=attrgetter("position"))

    def _line_result(
        self,
        needles: Sequence[bytes],
        text: str,
        complete: str,
        results: dict[tuple[str, str], _LineResult],
        wrapped: WrappedSearch,
    ) -> _LineResult:
        """The errors in a line; of an equal line, or one that differs only in digits that no pattern examines, if any.

        Args:
            needles: The needles in the line.
            text: The line without prefixes.
            complete: The line with them.
            results: The errors in other lines, by their texts and lines.
            wrapped: Says for which needles unmatched patterns are not needed.
        """
        ignore_digits = all(self._patterns[needle].ignore_digits for needle in needles)
        key = text.translate(_ZEROS) if ignore_digits else text
        result = results.get((key, ""))
        if result is None:
            key_line = key if text is complete else complete.translate(_ZEROS) if ignore_digits else complete
            result = results.get((key, key_line))
        text, complete = text.strip(), complete.strip()
        if result is None:
            result = self._new_line_result(needles, text, complete, wrapped)
            if len(results) < _MAX_RESULTS:
                results[key, "" if _is_independent(text, result) else key_line] = result
        elif ignore_digits and result.matches:
            matches = tuple([_in_line(match, complete) for match in result.matches])
            result = _LineResult(matches, result.unmatched)
        return result

    def _new_line_result(
        self, needles: Sequence[bytes], text: str, complete: str, wrapped: WrappedSearch
    ) -> _LineResult:
        """The errors in a line, which is given without and with prefixes."""
        used = _longest(needles)
        whole = cased(complete)
        line = whole if text == complete else cased(text)
        possible = chain.from_iterable([self._patterns[needle].possible(whole.lower) for needle in used])
        matches = matches_in_line(possible, line, whole)
        if matches:
            matched = {match.candidate.letters for match in matches}
            used = [needle for needle in used if needle not in matched]
        rest = used and [needle for needle in used if needle not in wrapped.exhausted]
        return _LineResult(distinct(matches), self._with_core(rest, text) if rest else {})

    def _with_core(self, needles: Sequence[bytes], text: str) -> Mapping[bytes, Sequence[PreparedPattern]]:
        """The patterns with each of these needles, if the text has the needle with its punctuation."""
        dense_text = cased(dense(text))
        patterns = {needle: self._patterns[needle].with_core(dense_text) for needle in needles}
        return {needle: some for needle, some in patterns.items() if some}


def _in_line(match: LineMatch, line: str) -> LineMatch:
    """A match in another line, which differs only in digits that the pattern does not examine."""
    return match if line.endswith(match.line) else LineMatch(match.candidate, match.match, line[-len(match.line) :])


def _is_independent(text: str, result: _LineResult) -> bool:
    """Whether all errors are in a line without prefixes, so that its prefix has no influence."""
    return bool(result.matches) and not result.unmatched and all(match.line == text for match in result.matches)


def _longest(needles: Sequence[bytes]) -> Sequence[bytes]:
    return sorted(needles, key=len, reverse=True)[:_MAX_NEEDLES] if len(needles) > _MAX_NEEDLES else needles


def _rows_with_needles(
    occurrences: Sequence[tuple[bytes, int]], lines: RankLines
) -> tuple[Mapping[int, list[bytes]], Mapping[tuple[int, int], list[bytes]]]:
    """The lines that contain needles, and the first and last of the lines over which needles are broken.

    Args:
        occurrences: The needles of the lines, each with its index in their letters, in order.
        lines: The lines.
    """
    if not occurrences:
        return {}, {}
    single_rows: dict[int, list[bytes]] = defaultdict(list)
    broken: list[tuple[bytes, int, int]] = []
    ends = list(accumulate(letter_counts(lines.texts)))
    row = 0
    for needle, start in occurrences:
        if ends[row] <= start:
            row = bisect_right(ends, start, row)
        if start + len(needle) <= ends[row]:
            needles = single_rows[row]
            if needle not in needles:  # the same patterns would match at another occurrence within this line
                needles.append(needle)
        else:
            broken.append((needle, start, row))
    return single_rows, _broken_rows(broken, ends, lines)


def _broken_rows(
    broken: Iterable[tuple[bytes, int, int]], ends: Sequence[int], lines: RankLines
) -> Mapping[tuple[int, int], list[bytes]]:
    """The needles that are broken over lines of one rank.

    Args:
        broken: Needles, each with its index in the letters and its first line.
        ends: Where the letters of each line end.
        lines: The lines.
    """
    rows: dict[tuple[int, int], list[bytes]] = defaultdict(list)
    rank = range(0)
    for needle, start, row in broken:
        last = bisect_left(ends, start + len(needle), row)
        rank = rank if row in rank else lines.of_rank(row)
        if last < rank.stop:
            rows[row, last].append(needle)
    return rows
