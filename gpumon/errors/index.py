"""Writes the index of the entries: `python -m gpumon.errors.index`, after each change of a wording or of the ids."""

import json
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final

from gpumon.errors.entry import KnownError
from gpumon.errors.load import INDEX, ErrorCatalogue, entry_files, entry_texts, parse
from gpumon.errors.needles import index_rows
from gpumon.errors.patterns import literals

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
    needles = index_rows(_needles(error for error, _, _ in entries))
    lines = [json.dumps([error_id, stem]) for _, error_id, stem in entries]
    rows = [f"{json.dumps(gram)}: {json.dumps(row)}" for gram, row in needles.items()]
    joint = ",\n"
    raised = [order for order, (error, _, _) in enumerate(entries) if any(map(_RAISED_IN, error.wordings))]
    return (
        f'{{"entries": [\n{joint.join(lines)}\n],\n"raised": {json.dumps(raised)},\n'
        f'"needles": {{\n{joint.join(rows)}\n}}}}\n'
    )


def catalogue_of(errors: Sequence[KnownError]) -> "ErrorCatalogue":
    """A catalogue of some errors, which stand in no file."""
    catalogue = ErrorCatalogue([(error.id, "") for error in errors], index_rows(_needles(errors)))
    catalogue.add(errors)
    return catalogue


def _needles(errors: Iterable[KnownError]) -> Iterator[tuple[str, int, int]]:
    for order, error in enumerate(errors):
        for number, wording in enumerate(error.wordings):
            if not wording.raised_in:
                yield literals(wording.regex).needle, order, number


if __name__ == "__main__":
    INDEX.write_text(index_text(), "utf-8")
