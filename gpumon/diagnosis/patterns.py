"""A pattern of the catalogue made fit for text that was broken: by terminals, by loggers, by copying."""

import re
import string
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Final

_ESCAPED_SPACE: Final = frozenset({r"\s", r"\ "})
_BOUNDARIES: Final = frozenset({r"\b", r"\A", r"\Z"})
_NO_LETTERS: Final = bytes(set(range(128)) - set(string.ascii_letters.encode()))
_PART: Final = 8
"""Shorter parts are shared by more needles, but stand in ordinary words as well."""
_GAP: Final = r"\s*"

_PIECES: Final = re.compile(
    r"""\[\^?\]?(?:\\.|[^\]\\])*\]   # a set of characters, which stays as it is
      | \(\?<[=!][^()]*\)           # what must or must not stand before, which has to be of one length
      | \(\?P<\w+>                  # the name of a group
      | \\. | .""",
    re.VERBOSE | re.DOTALL,
)
_QUANTIFIER: Final = re.compile(r"(?:[?*+]|\{\d*,?\d*\})[?+]?")


def squeezed(text: str) -> bytes:
    """The letters of a text alone, which is how needles are looked for: that is fast, and breaks do not matter."""
    return text.encode("ascii", "ignore").translate(None, _NO_LETTERS)


def shared_parts(needles: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    """Parts that the needles have in common, with the needles that have each: one search stands for several."""
    left = set(needles)
    found: dict[bytes, list[bytes]] = {}
    while left:
        counts = Counter(part for needle in left for part in _parts(needle))
        part, count = max(counts.items(), key=lambda item: (item[1], item[0]))
        if count == 1:
            return found | {needle: [needle] for needle in sorted(left)}
        found[part] = sorted(needle for needle in left if part in needle)
        left.difference_update(found[part])
    return found


def _parts(needle: bytes) -> set[bytes]:
    return {needle[start : start + _PART] for start in range(max(1, len(needle) - _PART + 1))}


@cache
def exact(regex: str) -> re.Pattern[str]:
    """The pattern for a line that is whole."""
    return re.compile(regex, re.MULTILINE)


@cache
def wrapped(regex: str) -> re.Pattern[str]:
    """The pattern for lines that were joined without anything between them.

    Where a line was broken a space may be missing, so that each space may; and a word's end may touch the next word.
    """
    found: list[str] = []
    place = 0
    while place < len(regex):
        piece = _PIECES.match(regex, place)
        assert piece is not None  # the last branch takes any character
        place = piece.end()
        if piece[0] == " " or piece[0] in _ESCAPED_SPACE:
            quantifier = _QUANTIFIER.match(regex, place)
            place = place if quantifier is None else quantifier.end()
            found.append(_GAP)
        elif piece[0] not in _BOUNDARIES:
            found.append(piece[0])
    return re.compile("".join(found))
