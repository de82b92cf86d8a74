"""Texts of other programs, kept as printed, each below a line with its name."""

from functools import cache
from pathlib import Path
from typing import Final

DATA: Final = Path(__file__).resolve().parents[1] / "data"
SAMPLES: Final = Path(__file__).with_name("samples")
"""One file per file of entries, with the texts of its errors in the wordings of old and new versions."""
_MARK: Final = "=== "


def named_texts(path: Path) -> list[tuple[str, str]]:
    """The texts of a file with their names, which may repeat."""
    texts: list[tuple[str, list[str]]] = []
    for line in path.read_text().splitlines():
        if line.startswith(_MARK):
            texts.append((line.removeprefix(_MARK), []))
        else:
            texts[-1][1].append(line)
    return [(name, "\n".join(lines)) for name, lines in texts]


def _id_and_source(name: str) -> tuple[str, str]:
    error_id, _, source = name.partition(" ")
    return error_id, source


SOURCED_WORDINGS: Final[list[tuple[str, str, str]]] = [
    (*_id_and_source(name), text) for path in sorted(SAMPLES.glob("*.txt")) for name, text in named_texts(path)
]
"""The ids of errors, each with the address and version of a source, if it is known, and one text of that error."""

WORDINGS: Final[list[tuple[str, str]]] = [(name, text) for name, _, text in SOURCED_WORDINGS]
"""The ids of errors, each with one text of that error."""


@cache
def _by_id() -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for name, text in WORDINGS:
        texts.setdefault(name, []).append(text)
    return texts


def samples_of(error_id: str) -> list[str]:
    """The texts of an error."""
    return _by_id().get(error_id, [])
