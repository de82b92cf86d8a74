"""Searches a text for all needles at once, in a time that hardly depends on their number.

The text is a sequence of words, of which a log has few different ones, however long it is. A needle is compared only
where a word has its rarest gram of four letters, and only if other words have the other grams that it requires.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, compress
from operator import itemgetter
from typing import Final, NamedTuple

from gpumon.errors.patterns import LetterWords, squeezed

_GRAM: Final = 4
"""Letters per gram: all needles but a few have a word of this length."""
_MAX_GRAMS: Final = 3
"""Grams of a needle that the text must have; ordinary text has one or two of many needles, but rarely three."""
_MAX_WORD: Final = 64
"""Letters of a word that are examined at once: longer ones are no words, and often repeat themselves."""
_MAX_SEARCHES: Final = 64
"""Needles up to which to search the text for each is faster than to examine its words one after the other."""
_WORD: Final = re.compile("[a-z]+")
_NO_GRAM: Final = ""
"""In the index, in place of the rarest gram of a needle that has none; such a needle is always searched."""


class IndexedNeedle(NamedTuple):
    """A needle, as the index has it.

    Attributes:
        letters: Its letters.
        grams: Other grams that a text with the needle has.
        places: See `NeedleIndex.places`.
    """

    letters: bytes
    grams: Sequence[str]
    places: Sequence[int]


class NeedleIndex:
    """Needles to search.

    Args:
        rows: The needles by their rarest gram, see `index_rows`.
    """

    def __init__(self, rows: Mapping[str, str]) -> None:
        self._rows = rows
        self._needles: dict[str, Sequence[IndexedNeedle]] = {}
        self._places: dict[bytes, Sequence[int]] = {}

    def search(self, text: LetterWords) -> list[tuple[bytes, int]]:
        """The needles of a text, each with its index in the letters, in the order of the text."""
        letters = text.letters
        distinct = text.vocabulary.decode().split()
        grams = {gram for word in distinct for gram in _grams(word)}
        possible: dict[str, list[IndexedNeedle]] = {}
        for gram in self._rows.keys() & grams:
            needles = [needle for needle in self.with_gram(gram) if grams.issuperset(needle.grams)]
            if needles:
                possible[gram] = needles
        always = [*self.with_gram(_NO_GRAM)]
        if sum(map(len, possible.values())) <= _MAX_SEARCHES:
            always += chain.from_iterable(possible.values())
            possible.clear()
        occurrences = [(needle.letters, start) for needle in always for start in _starts(needle.letters, letters)]
        if possible:
            occurrences += _occurrences(text, _places(distinct, possible))
        occurrences.sort(key=itemgetter(1))
        return occurrences

    def with_gram(self, gram: str) -> Sequence[IndexedNeedle]:
        """The needles whose rarest gram is this one."""
        if gram not in self._needles:
            self._needles[gram] = [_parsed(row) for row in self._rows.get(gram, "").split(";") if row]
            self._places.update((needle.letters, needle.places) for needle in self._needles[gram])
        return self._needles[gram]

    def places(self, letters: bytes) -> Sequence[int]:
        """The index of each entry that has a needle which was found and, behind that, the index of the wording."""
        return self._places[letters]


def _parsed(row: str) -> IndexedNeedle:
    letters, grams, places = row.split(":")
    return IndexedNeedle(letters.encode(), grams.split(), tuple(map(int, places.split())))


def _grams(word: str) -> Iterator[str]:
    parts: Iterable[str] = (word,)
    if len(word) > _MAX_WORD:
        parts = {word[start : start + _MAX_WORD + _GRAM - 1] for start in range(0, len(word), _MAX_WORD)}
    return (part[start : start + _GRAM] for part in parts for start in range(len(part) - _GRAM + 1))


def _starts(part: bytes, letters: bytes) -> Iterator[int]:
    start = letters.find(part)
    while start >= 0:
        yield start
        start = letters.find(part, start + 1)


def _places(
    words: Iterable[str], possible: Mapping[str, Sequence[IndexedNeedle]]
) -> dict[bytes, list[tuple[bytes, int]]]:
    """Words with the rarest grams of needles: the needles, each with where it would start relative to the word."""
    starts = {
        gram: [(needle.letters, start) for needle in some for start in _starts(gram.encode(), needle.letters)]
        for gram, some in possible.items()
    }
    places: dict[bytes, list[tuple[bytes, int]]] = defaultdict(list)
    for word in words:
        if not starts.keys().isdisjoint(_grams(word)):
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


def index_rows(needles: Iterable[tuple[str, int, int]]) -> Mapping[str, str]:
    """The rows of the index, by the rarest gram of the needles of each.

    A row has the needles, separated by semicolons: the letters, other grams, and the entries with their wordings,
    separated by colons. A needle has its grams within words, in whatever words a wording divides it.

    Args:
        needles: The text of each, with the index of its entry and that of its wording.
    """
    places: dict[str, list[int]] = defaultdict(list)
    grams: dict[str, dict[str, str]] = {}
    for text, order, number in needles:
        letters = squeezed(text).decode()
        places[letters] += (order, number)
        own = {gram: word for word in _WORD.findall(text.lower()) for gram in _grams(word)}
        grams[letters] = {gram: word for gram, word in own.items() if gram in grams.get(letters, own)}
    frequency = Counter(gram for own in grams.values() for gram in own)
    rows: dict[str, list[str]] = defaultdict(list)
    for letters, own in grams.items():
        of_words = {own[gram]: gram for gram in sorted(own, key=frequency.__getitem__, reverse=True)}
        rarest, *others = sorted(of_words.values(), key=frequency.__getitem__)[:_MAX_GRAMS] or [_NO_GRAM]
        rows[rarest].append(f"{letters}:{' '.join(others)}:{' '.join(map(str, places[letters]))}")
    return {gram: ";".join(rows[gram]) for gram in sorted(rows)}
