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
_FIRST: Final = ord("a")
_MAX_SEARCHES: Final = 32
"""Needles up to which to search the text for each is faster than to read its pieces one after the other."""


class NeedleIndex:
    """Needles to search.

    Args:
        needles: Texts of lower-case letters, each with its rarest pieces, see `rarest_pieces`.
    """

    def __init__(self, needles: Mapping[bytes, str]) -> None:
        self._short = [needle for needle in needles if len(needle) < _MIN_LETTERS]
        self._long = [needle for needle in needles if len(needle) >= _MIN_LETTERS]
        self._by_piece: dict[int, int] = {}
        """By the piece by which it is looked up: a needle and its start in a piece, as a number (many objects less)."""
        self._others: dict[int, list[int]] = defaultdict(list)
        """The same, of more needles with a piece that one has already."""
        pieces: list[int] = []
        for index, needle in enumerate(self._long):
            for start, letters in enumerate(needles[needle].split(".")):
                offsets = [start + _STRIDE * (ord(letter) - _FIRST) for letter in letters]
                rarest = [int.from_bytes(needle[offset : offset + _PIECE], sys.byteorder) for offset in offsets]
                pieces += rarest
                number = index * _STRIDE + start
                if self._by_piece.setdefault(rarest[0], number) != number:
                    self._others[rarest[0]].append(number)
        self._pieces = frozenset(pieces)

    def search(self, letters: bytes) -> "NeedleSearch":
        """The needles that a text contains, or may contain."""
        size = len(letters) // _PIECE * _PIECE + _PIECE
        padded = memoryview(letters.ljust(size + _STRIDE, b"\0"))
        views = padded[:size].cast("Q"), padded[_STRIDE:].cast("Q")
        present = self._pieces.intersection(views[0]) | self._pieces.intersection(views[1])
        places: dict[int, list[tuple[bytes, int]]] = defaultdict(list)
        for piece in present & self._by_piece.keys():
            for number in (self._by_piece[piece], *self._others.get(piece, ())):
                offsets = dict(self._cut(number))
                if present.issuperset(self._pieces.intersection(offsets)):
                    places[piece].append((self._long[number // _STRIDE], offsets[piece]))
        possible = dict.fromkeys(needle for some in places.values() for needle, _ in some)
        if len(possible) > _MAX_SEARCHES:
            return NeedleSearch(_occurrences(letters, views, places), self._short)
        return NeedleSearch([], [*self._short, *possible])

    def _cut(self, number: int) -> list[tuple[int, int]]:
        """The pieces of a needle, each with its index in it, if the text is cut before one of its first letters.

        Args:
            number: The index of the needle, times the stride, plus the index of the letter.
        """
        needle = self._long[number // _STRIDE]
        offsets = _offsets(needle, number % _STRIDE)
        return [(int.from_bytes(needle[offset : offset + _PIECE], sys.byteorder), offset) for offset in offsets]


def rarest_pieces(needles: Iterable[str]) -> Mapping[str, str]:
    """The pieces of each needle that the fewest needles have.

    For each of the first letters before which the text may be cut, a few letters, the rarest piece first: `a` for the
    piece that starts there, `b` for the next one. A needle that is too short has none.
    """
    pieces = {needle: [list(_offsets(needle, start)) for start in range(_STRIDE)] for needle in needles}
    frequency = Counter(
        needle[offset : offset + _PIECE] for needle, cuts in pieces.items() for offsets in cuts for offset in offsets
    )
    rarest: dict[str, str] = {}
    for needle, cuts in pieces.items():
        words = []
        for start, offsets in enumerate(cuts):
            ranked = sorted(offsets, key=lambda offset: frequency[needle[offset : offset + _PIECE]])[:_MAX_PIECES]
            words.append("".join(chr(_FIRST + (offset - start) // _STRIDE) for offset in ranked))
        rarest[needle] = ".".join(words) if len(needle) >= _MIN_LETTERS else ""
    return rarest


def _offsets(needle: str | bytes, start: int) -> range:
    """Where the pieces of a needle start, if the text is cut before one of its first letters."""
    return range(start, len(needle) - _PIECE + 1, _STRIDE)


class ShortSearch:
    """Searches a short text for needles, by all of its pieces: that takes longer per letter, but needs no preparation.

    Args:
        needles: Texts of lower-case letters, each with its rarest pieces, see `rarest_pieces`.
    """

    def __init__(self, needles: Mapping[bytes, str]) -> None:
        self._by_piece: dict[bytes, list[bytes]] = {}
        self._short: list[bytes] = []
        for needle, rarest in needles.items():
            start = _STRIDE * (ord(rarest[0]) - _FIRST) if rarest else 0
            if len(needle) < _PIECE:
                self._short.append(needle)
            else:
                self._by_piece.setdefault(needle[start : start + _PIECE], []).append(needle)

    def search(self, letters: bytes) -> "NeedleSearch":
        """The needles that a text contains."""
        pieces = {letters[start : start + _PIECE] for start in range(len(letters) - _PIECE + 1)}
        possible = [needle for piece in pieces & self._by_piece.keys() for needle in self._by_piece[piece]]
        return NeedleSearch([], [needle for needle in (*possible, *self._short) if needle in letters])


class NeedleSearch(NamedTuple):
    """The result of a search for needles.

    Attributes:
        occurrences: Needles that the text contains, each with its index, in the order of the text.
        possible: Other needles that it may contain, so few that the text can be searched for each.
    """

    occurrences: Sequence[tuple[bytes, int]]
    possible: Sequence[bytes]


def _occurrences(
    letters: bytes, views: Sequence[memoryview], places: Mapping[int, Sequence[tuple[bytes, int]]]
) -> list[tuple[bytes, int]]:
    """The needles of a text in the order of the text.

    Args:
        letters: The text.
        views: Its pieces.
        places: Needles by a piece that they contain, each with the index of the piece in it.
    """
    occurrences: list[tuple[bytes, int]] = []
    starts_with = letters.startswith
    for parity, view in enumerate(views):
        for index in compress(count(), map(places.__contains__, view)):
            position = index * _PIECE + parity * _STRIDE
            for needle, offset in places[view[index]]:
                if starts_with(needle, position - offset) and position >= offset:
                    occurrences.append((needle, position - offset))
    occurrences.sort(key=itemgetter(1))
    return occurrences
