"""Searches a text for all needles at once, in a time that hardly depends on their number.

The text is a sequence of words, of which a log has few different ones, however long it is. A needle is searched only
if a word has its rarest gram of four letters, and other words have the other grams that it requires.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final

from gpumon.errors.patterns import LetterWords

_GRAM: Final = 4
"""Letters per gram: all needles but a few have a word of this length."""
_MAX_WORD: Final = 64
"""Letters of a word that are examined at once: longer ones are no words, and often repeat themselves."""
NO_GRAM: Final = ""
"""In the index, in place of the rarest gram of a needle that has none; such a needle is always searched."""


class NeedleIndex:
    """Needles to search."""

    def __init__(self, rows: Mapping[str, str]) -> None:
        self._rows = rows
        self._needles: dict[str, Sequence[tuple[bytes, Sequence[str]]]] = {}
        """By its rarest gram, the letters of each needle, and the other grams that a text with it has."""
        self._places: dict[bytes, Sequence[int]] = {}

    def search(self, text: LetterWords) -> list[tuple[bytes, int]]:
        """The needles of a text, each with its index in the letters, in the order of the text."""
        words = text.vocabulary.decode().split()
        present = {gram for word in words for gram in grams(word)}
        possible = [letters for letters, _ in self._with_gram(NO_GRAM)]
        for gram in self._rows.keys() & present:
            possible += [letters for letters, others in self._with_gram(gram) if present.issuperset(others)]
        occurrences = ((needle, start) for needle in possible for start in _starts(needle, text.letters))
        return sorted(occurrences, key=itemgetter(1))

    def _with_gram(self, gram: str) -> Sequence[tuple[bytes, Sequence[str]]]:
        if gram not in self._needles:
            rows = [row.split(":") for row in self._rows.get(gram, "").split(";") if row]
            self._needles[gram] = [(letters.encode(), others.split()) for letters, others, _ in rows]
            self._places |= {letters.encode(): tuple(map(int, places.split())) for letters, _, places in rows}
        return self._needles[gram]

    def places(self, letters: bytes) -> Sequence[int]:
        """The index of each entry that has a needle which was found and, behind that, the index of the wording."""
        return self._places[letters]


def grams(word: str) -> Iterator[str]:
    """The grams of a word."""
    parts: Iterable[str] = (word,)
    if len(word) > _MAX_WORD:
        parts = {word[start : start + _MAX_WORD + _GRAM - 1] for start in range(0, len(word), _MAX_WORD)}
    return (part[start : start + _GRAM] for part in parts for start in range(len(part) - _GRAM + 1))


def _starts(part: bytes, letters: bytes) -> Iterator[int]:
    start = letters.find(part)
    while start >= 0:
        yield start
        start = letters.find(part, start + 1)
