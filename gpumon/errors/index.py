"""Writes the index of the entries: `python -m gpumon.errors.index`, after each change of a wording or of the ids."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final

from gpumon.errors.entry import KnownError
from gpumon.errors.load import INDEX, ErrorCatalogue, entry_files, entry_texts, parse
from gpumon.errors.needles import rarest_pieces
from gpumon.errors.patterns import literals, squeezed

_RAISED_IN: Final = attrgetter("raised_in")


def index_text() -> str:
    """The index of the files: the ids in order, each with its file, and the needles with the wordings that have them.

    Raises:
        EntryError: An entry cannot be read.
    """
    entries = []
    for path in entry_files():
        for error_id, line, text in entry_texts(path):
            entries.append((parse(text, path.name, line), error_id, path.stem))
    needles = _needles([error for error, _, _ in entries])
    lines = [json.dumps([error_id, stem]) for _, error_id, stem in entries]
    rows = [f"{json.dumps(needle)}: {json.dumps(pairs)}" for needle, pairs in sorted(needles.items())]
    joint = ",\n"
    raised = [order for order, (error, _, _) in enumerate(entries) if any(map(_RAISED_IN, error.wordings))]
    return (
        f'{{"entries": [\n{joint.join(lines)}\n],\n"raised": {json.dumps(raised)},\n'
        f'"needles": {{\n{joint.join(rows)}\n}}}}\n'
    )


def catalogue_of(errors: Sequence[KnownError]) -> "ErrorCatalogue":
    """A catalogue of some errors, which stand in no file."""
    catalogue = ErrorCatalogue([(error.id, "") for error in errors], _needles(errors))
    catalogue.add(errors)
    return catalogue


def _needles(errors: Iterable[KnownError]) -> dict[str, list[int | str]]:
    """The needles, as a catalogue has them."""
    places: dict[str, list[int]] = defaultdict(list)
    for letters, order, number in _places(errors):
        places[letters] += (order, number)
    rarest = rarest_pieces(places)
    return {letters: [rarest[letters], *numbers] for letters, numbers in places.items()}


def _places(errors: Iterable[KnownError]) -> Iterator[tuple[str, int, int]]:
    for order, error in enumerate(errors):
        for number, wording in enumerate(error.wordings):
            if not wording.raised_in:
                yield squeezed(literals(wording.regex).needle).decode(), order, number


if __name__ == "__main__":
    INDEX.write_text(index_text(), "utf-8")
