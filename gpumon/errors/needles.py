"""Searches a text for all needles at once, in a time that hardly depends on their number.

The text is a sequence of words, of which a log has few different ones, however long it is. A needle is compared only
where a word has its rarest gram of four letters, and only if other words have the other grams that it requires.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, compress
from operator import itemgetter
from typing import Final, NamedTuple

from gpumon.errors.patterns import LetterWords

_GRAM: Final = 4
"""Letters per gram: all needles but a few have a word of this length."""
MAX_GRAMS: Final = 3
"""Grams of a needle that the text must have; ordinary text has one or two of many needles, but rarely three."""
_MAX_WORD: Final = 64
"""Letters of a word that are examined at once: longer ones are no words, and often repeat themselves."""
_MAX_SEARCHES: Final = 64
"""Needles up to which to search the text for each is faster than to examine its words one after the other."""
NO_GRAM: Final = ""
"""In the index, in place of the rarest gram of a needle that has none; such a needle is always searched."""


class _Needle(NamedTuple):
    """A needle: its letters, and the other grams that a text with it has."""

    letters: bytes
    grams: Sequence[str]


class NeedleIndex:
    """Needles to search."""

    def __init__(self, rows: Mapping[str, str]) -> None:
        self._rows = rows
        self._needles: dict[str, Sequence[_Needle]] = {}
        self._places: dict[bytes, Sequence[int]] = {}

    def search(self, text: LetterWords) -> list[tuple[bytes, int]]:
        """The needles of a text, each with its index in the letters, in the order of the text."""
        words = text.vocabulary.decode().split()
        present = {gram for word in words for gram in grams(word)}
        possible: dict[str, list[bytes]] = {}
        for gram in self._rows.keys() & present:
            needles = [needle.letters for needle in self._with_gram(gram) if present.issuperset(needle.grams)]
            if needles:
                possible[gram] = needles
        always = [needle.letters for needle in self._with_gram(NO_GRAM)]
        if sum(map(len, possible.values())) <= _MAX_SEARCHES:
            always += chain.from_iterable(possible.values())
            possible.clear()
        occurrences = [(needle, start) for needle in always for start in _starts(needle, text.letters)]
        if possible:
            occurrences += _occurrences(text, _places(words, possible))
        # A needle that has its rarest gram twice was found once for each.
        return sorted(dict.fromkeys(occurrences), key=itemgetter(1))

    def _with_gram(self, gram: str) -> Sequence[_Needle]:
        if gram not in self._needles:
            rows = [row.split(":") for row in self._rows.get(gram, "").split(";") if row]
            self._needles[gram] = [_Needle(letters.encode(), others.split()) for letters, others, _ in rows]
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


def _places(words: Iterable[str], possible: Mapping[str, Sequence[bytes]]) -> dict[bytes, list[tuple[bytes, int]]]:
    """Words with the rarest grams of needles: the needles, each with where it would start relative to the word."""
    starts = {
        gram: [(needle, start) for needle in some for start in _starts(gram.encode(), needle)]
        for gram, some in possible.items()
    }
    places: dict[bytes, list[tuple[bytes, int]]] = defaultdict(list)
    for word in words:
        if not starts.keys().isdisjoint(grams(word)):
            for offset in range(len(word) - _GRAM + 1):
                for needle, start in starts.get(word[offset : offset + _GRAM], ()):
                    places[word.encode()].append((needle, offset - start))
    return places


def _occurrences(text: LetterWords, places: Mapping[bytes, Sequence[tuple[bytes, int]]]) -> Iterator[tuple[bytes, int]]:
    starts = accumulate(map(len, text.words), initial=0)
    for word, start in compress(zip(text.words, starts, strict=False), map(places.__contains__, text.words)):
        for needle, offset in places[word]:
            position = start + offset
            if position >= 0 and text.letters.startswith(needle, position):
                yield needle, position
