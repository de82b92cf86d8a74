"""Searches a long text for many needles at once, in a time that hardly depends on their number.

The text is cut into pieces of eight letters, which Python looks up as integers. A needle of eleven letters or more
contains such pieces wherever it starts, and is searched itself only if the text has its pieces.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

_PIECE: Final = 8
"""Letters per piece: the size of the largest integer of a memory view."""
_STRIDE: Final = 4
"""Letters from the start of a piece to the start of the next one, so that a needle of this plus 7 letters has one."""
_MIN_LETTERS: Final = _PIECE + _STRIDE - 1
_MAX_PIECES: Final = 3
"""Pieces of a needle that the text must have; ordinary text has one or two of many needles, but rarely three."""


class NeedleIndex:
    """Needles to search.

    Args:
        needles: Texts of lower-case letters.
    """

    def __init__(self, needles: Iterable[bytes]) -> None:
        self._short: list[bytes] = []
        self._by_piece: dict[int, list[tuple[bytes, frozenset[int]]]] = defaultdict(list)
        pieces: set[int] = set()
        for needle in dict.fromkeys(needles):
            if len(needle) < _MIN_LETTERS:
                self._short.append(needle)
                continue
            for start in range(_STRIDE):
                first, *more = _pieces(needle, start)
                self._by_piece[first].append((needle, frozenset(more)))
                pieces.update((first, *more))
        self._pieces = frozenset(pieces)

    def present(self, letters: bytes) -> list[bytes]:
        """The needles that a text contains, each once."""
        padded = memoryview(letters + bytes(_PIECE + _STRIDE))
        present_pieces: set[int] = set()
        for start in range(0, _PIECE, _STRIDE):
            size = (len(padded) - start) // _PIECE * _PIECE
            present_pieces.update(self._pieces.intersection(padded[start : start + size].cast("Q")))
        possible = dict.fromkeys(self._short)
        for piece in present_pieces & self._by_piece.keys():
            possible.update((needle, None) for needle, more in self._by_piece[piece] if more <= present_pieces)
        return [needle for needle in possible if needle in letters]


def _pieces(needle: bytes, start: int) -> Iterator[int]:
    """The pieces of a needle, if the text is cut before the letter at an index."""
    for index in range(_MAX_PIECES):
        piece = needle[start + index * _STRIDE : start + index * _STRIDE + _PIECE]
        if len(piece) == _PIECE:
            yield int.from_bytes(piece, sys.byteorder)
