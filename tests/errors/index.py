"""Writes the index of the entries: `python -m tests.errors.index`, after each change of a wording or of the ids.

The index has the needles by their rarest gram; see `gpumon.errors.needles`.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpumon.errors.entry import KnownError
from gpumon.errors.load import ENTRIES, INDEX, SHARED, entry_texts, parse
from gpumon.errors.needles import NO_GRAM, grams
from gpumon.errors.patterns import LetterWords, literals


def entry_files() -> list[Path]:
    """The files with entries, in the order of their names."""
    return sorted(path for path in ENTRIES.glob("*.txt") if path.stem not in SHARED)


def index_text() -> str:
    """The index of the files, with a line per entry and needle.

    Raises:
        ValueError: An entry cannot be read.
    """
    entries = [(path, name, *text) for path in entry_files() for name, text in entry_texts(path.stem).items()]
    files = {error_id: path.stem for path, error_id, _, _ in entries}
    also = {name: error_id for _, error_id, _, text in entries for name in _names(text)}
    document = index_document([parse(text, path.name, line) for path, _, line, text in entries], files, also)
    return json.dumps(document, indent=0) + "\n"


def index_document(
    errors: Iterable[KnownError], files: Mapping[str, str], also: Mapping[str, str]
) -> Mapping[str, Any]:
    """The index of some errors."""
    errors = list(errors)
    raised = [error.id for error in errors if any(wording.raised_in for wording in error.wordings)]
    return {"entries": dict(files), "also": dict(also), "raised": raised, "needles": _rows(_needles(errors))}


def _names(text: str) -> list[str]:
    """The further ids of an entry, from its lines."""
    match = re.search(r"^also +((?:.+\n +)*.+)", text, re.MULTILINE)
    return [] if match is None else match[1].split()


def _needles(errors: Iterable[KnownError]) -> Iterator[tuple[str, int, int]]:
    for order, error in enumerate(errors):
        for number, wording in enumerate(error.wordings):
            if not wording.raised_in:
                yield literals(wording.regex).needle, order, number


def _rows(needles: Iterable[tuple[str, int, int]]) -> Mapping[str, str]:
    """The rows of the index, by the rarest gram of the needles of each.

    A row has the needles, separated by semicolons: the letters, other grams, and the entries with their wordings,
    separated by colons. A needle has its grams within words, in whatever words a wording divides it.
    """
    places: dict[str, list[int]] = defaultdict(list)
    words_by_gram: dict[str, dict[str, str]] = {}
    for text, order, number in needles:
        words = [word.decode() for word in LetterWords(text).words]
        letters = "".join(words)
        places[letters] += (order, number)
        own = {gram: word for word in words for gram in grams(word)}
        words_by_gram[letters] = {gram: own[gram] for gram in own if gram in words_by_gram.get(letters, own)}
    frequency = Counter(gram for own in words_by_gram.values() for gram in own)
    rows: dict[str, list[str]] = defaultdict(list)
    for letters, own in words_by_gram.items():
        of_words = {own[gram]: gram for gram in sorted(own, key=frequency.__getitem__, reverse=True)}
        # Ordinary text has one or two grams of many needles, but rarely three.
        rarest, *others = sorted(of_words.values(), key=frequency.__getitem__)[:3] or [NO_GRAM]
        rows[rarest].append(f"{letters}:{' '.join(others)}:{' '.join(map(str, places[letters]))}")
    return {gram: ";".join(rows[gram]) for gram in sorted(rows)}


if __name__ == "__main__":
    INDEX.write_text(index_text(), "utf-8")
