"""Searches a long text for many needles at once, in a time that hardly depends on their number.

The text is cut into pieces of eight letters, which Python looks up as integers. A needle of eleven letters or more
contains such pieces wherever it starts, and is compared only where its rarest piece is, if the text has others too.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, count
from operator import itemgetter
from typing import Final, NamedTuple

_PIECE: Final = 8
"""Letters per piece: the size of the largest integer of a memory view."""
_STRIDE: Final = 4
"""Letters from the start of a piece to the start of the next one, so that a needle of this plus 7 letters has one."""
_MIN_LETTERS: Final = _PIECE + _STRIDE - 1
_MAX_PIECES: Final = 3
"""Pieces of a needle that the text must have; ordinary text has one or two of many needles, but rarely three."""
_MAX_SEARCHES: Final = 32
"""Needles up to which to search the text for each is faster than to read its pieces one after the other."""


class _Place(NamedTuple):
    """Where pieces of a needle are, if it starts at a certain letter of a piece.

    Attributes:
        needle: The needle.
        offset: Letters of the needle before the piece by which it is looked up.
        more: Other pieces, which the text must have as well.
    """

    needle: bytes
    offset: int
    more: tuple[int, ...]


class NeedleIndex:
    """Needles to search.

    Args:
        needles: Texts of lower-case letters.
    """

    def __init__(self, needles: Iterable[bytes]) -> None:
        distinct = list(dict.fromkeys(needles))
        self._short = [needle for needle in distinct if len(needle) < _MIN_LETTERS]
        self._by_piece: dict[int, list[_Place]] = defaultdict(list)
        starts = [(needle, start) for needle in distinct if len(needle) >= _MIN_LETTERS for start in range(_STRIDE)]
        frequency = Counter(piece for needle, start in starts for piece, _ in _cut(needle, start))
        for needle, start in starts:  # cut again: to keep all pieces would need megabytes
            pieces = sorted(_cut(needle, start), key=lambda piece: frequency[piece[0]])
            (piece, offset), *more = pieces[:_MAX_PIECES]
            self._by_piece[piece].append(_Place(needle, offset, tuple(other for other, _ in more)))
        places = [place for places in self._by_piece.values() for place in places]
        self._pieces = frozenset(self._by_piece).union(*(place.more for place in places))

    def search(self, letters: bytes) -> "NeedleSearch":
        """The needles that a text contains, or may contain."""
        size = len(letters) // _PIECE * _PIECE + _PIECE
        padded = memoryview(letters.ljust(size + _STRIDE, b"\0"))
        views = padded[:size].cast("Q"), padded[_STRIDE:].cast("Q")
        present = self._pieces.intersection(views[0]) | self._pieces.intersection(views[1])
        places = {
            piece: some
            for piece in present & self._by_piece.keys()
            if (some := [place for place in self._by_piece[piece] if present.issuperset(place.more)])
        }
        possible = dict.fromkeys(place.needle for some in places.values() for place in some)
        if len(possible) > _MAX_SEARCHES:
            return NeedleSearch(_occurrences(letters, views, places), self._short)
        return NeedleSearch([], [*self._short, *possible])


class NeedleSearch(NamedTuple):
    """The result of a search for needles.

    Attributes:
        occurrences: Needles that the text contains, each with its index, in the order of the text.
        possible: Other needles that it may contain, so few that the text can be searched for each.
    """

    occurrences: Sequence[tuple[bytes, int]]
    possible: Sequence[bytes]


def _occurrences(
    letters: bytes, views: Sequence[memoryview], places: Mapping[int, Sequence[_Place]]
) -> list[tuple[bytes, int]]:
    """The needles of a text in the order of the text, found by their pieces."""
    occurrences: list[tuple[bytes, int]] = []
    offsets = {piece: [(place.needle, place.offset) for place in some] for piece, some in places.items()}
    starts_with = letters.startswith
    for parity, view in enumerate(views):
        for index in compress(count(), map(offsets.__contains__, view)):
            position = index * _PIECE + parity * _STRIDE
            for needle, offset in offsets[view[index]]:
                if starts_with(needle, position - offset) and position >= offset:
                    occurrences.append((needle, position - offset))
    occurrences.sort(key=itemgetter(1))
    return occurrences


def _cut(needle: bytes, start: int) -> list[tuple[int, int]]:
    """The pieces of a needle, each with its index in it, if the text is cut before the letter at an index."""
    offsets = range(start, len(needle) - _PIECE + 1, _STRIDE)
    return [(int.from_bytes(needle[offset : offset + _PIECE], sys.byteorder), offset) for offset in offsets]
