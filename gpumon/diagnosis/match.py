"""Finds known errors in the blocks of a log.

The needles of all patterns are looked for first, in the letters of a whole lane at once; only where one stands are
patterns tried. That makes a log without errors as cheap as the search for some words.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from gpumon.diagnosis.known import KnownError
from gpumon.diagnosis.patterns import exact, shared_parts, squeezed, wrapped
from gpumon.diagnosis.prefixes import without_prefix
from gpumon.diagnosis.scan import Block, Lane

_REACH: Final = 16
"""Lines before and after the needle in which the rest of a wrapped message is looked for."""
_MOST_TEXT: Final = 16384
_MOST_PUZZLES: Final = 256
"""So often in a block, at most, are the lines around a needle put together: a log may be full of its words."""


class Hit(NamedTuple):
    """A known error at a place of a block.

    Attributes:
        error: Which one.
        place: The line of the block that it begins on.
        groups: What the pattern's named groups took.
        line: The line that it was found in, broken lines joined.
        text: What stands from the error on, broken lines joined, for figures that follow.
        length: How much of the text the pattern took.
    """

    error: KnownError
    place: int
    groups: Mapping[str, str]
    line: str
    text: str
    length: int


class _Candidate(NamedTuple):
    """A pattern, the error that it belongs to, and the place of that in the catalogue."""

    order: int
    error: KnownError
    regex: str


class Finder:
    """Looks for known errors.

    Args:
        errors: The catalogue; of two errors that claim a line alike, the earlier one gets it.
    """

    def __init__(self, errors: Sequence[KnownError]) -> None:
        self._candidates: dict[bytes, list[_Candidate]] = defaultdict(list)
        for order, error in enumerate(errors):
            for pattern in error.patterns:
                self._candidates[squeezed(pattern.needle)].append(_Candidate(order, error, pattern.regex))
        self._parts = shared_parts(self._candidates)

    def hits(self, block: Block) -> list[Hit]:
        """What is found in a block, in the order of its lines, at most one error a line."""
        best: dict[int, tuple[tuple[bool, int, int], Hit]] = {}
        for lane in block.lanes():
            for order, hit in self._lane_hits(block, lane):
                rank = (not hit.error.is_echo, hit.length, -order)
                if block.first <= hit.place < block.end and (hit.place not in best or best[hit.place][0] < rank):
                    best[hit.place] = (rank, hit)
        return [best[place][1] for place in sorted(best)]

    def _lane_hits(self, block: Block, lane: Lane) -> Iterator[tuple[int, Hit]]:
        flat = squeezed("".join(lane.texts))
        parts = (part for part in self._parts if part in flat)
        found = [needle for part in parts for needle in self._parts[part] if needle in flat]
        if not found:
            return
        ends = list(accumulate(len(squeezed(text)) for text in lane.texts))
        for needle in found:
            puzzles = 0
            for start in _occurrences(needle, flat):
                rows = range(bisect_right(ends, start), bisect_right(ends, start + len(needle) - 1) + 1)
                hits = self._whole_hits(needle, block, lane, rows)
                if not hits and puzzles < _MOST_PUZZLES:
                    puzzles += 1
                    hits = self._broken_hits(needle, lane, rows)
                yield from hits

    def _whole_hits(self, needle: bytes, block: Block, lane: Lane, rows: range) -> list[tuple[int, Hit]]:
        if len(rows) > 1:
            return []
        tried = ((each.order, _whole(block, lane, each, rows.start)) for each in self._candidates[needle])
        return [(order, hit) for order, hit in tried if hit is not None]

    def _broken_hits(self, needle: bytes, lane: Lane, rows: range) -> list[tuple[int, Hit]]:
        tried = ((each.order, _broken(lane, each, rows)) for each in self._candidates[needle])
        return [(order, hit) for order, hit in tried if hit is not None]


def _occurrences(needle: bytes, text: bytes) -> Iterator[int]:
    start = text.find(needle)
    while start >= 0:
        yield start
        start = text.find(needle, start + len(needle))


def _whole(block: Block, lane: Lane, candidate: _Candidate, row: int) -> Hit | None:
    """The pattern in one line, without what loggers put before it or else with it."""
    place = lane.places[row]
    whole = block.lines[place].strip()
    for line in (lane.texts[row].strip(), whole, without_prefix(whole)):
        found = exact(candidate.regex).search(line)
        if found is not None:
            after = "".join(text.strip() for text in lane.texts[row + 1 : row + _REACH])
            text = (line[found.start() :] + after)[:_MOST_TEXT]
            return Hit(candidate.error, place, _groups(found), line, text, found.end() - found.start())
    return None


def _broken(lane: Lane, candidate: _Candidate, rows: range) -> Hit | None:
    """The pattern in the lines around the needle, joined; what takes a single line is not broken."""
    begin = max(0, rows.start - _REACH)
    pieces = [text.strip() for text in lane.texts[begin : rows.stop + _REACH]]
    ends = list(accumulate(len(piece) for piece in pieces))
    joined = "".join(pieces)
    for found in wrapped(candidate.regex).finditer(joined):
        first, last = bisect_right(ends, found.start()), bisect_right(ends, found.end() - 1)
        if first != last and begin + first < rows.stop and begin + last >= rows.start:
            line = joined[ends[first] - len(pieces[first]) : found.end()]
            text = joined[found.start() :][:_MOST_TEXT]
            place = lane.places[begin + first]
            return Hit(candidate.error, place, _groups(found), line, text, found.end() - found.start())
    return None


def _groups(found: re.Match[str]) -> dict[str, str]:
    return {name: text for name, text in found.groupdict().items() if text}
