"""Texts of the tests that are kept as they were printed, each under a line with its name."""

import json
from pathlib import Path
from typing import Final

DATA: Final = Path(__file__).resolve().parents[1] / "data"
_MARK: Final = "=== "


def named_texts(file: str) -> list[tuple[str, str]]:
    """The texts of a file with their names, which need not differ."""
    found: list[tuple[str, list[str]]] = []
    for line in (DATA / file).read_text().splitlines():
        if line.startswith(_MARK):
            found.append((line.removeprefix(_MARK), []))
        else:
            found[-1][1].append(line)
    return [(name, "\n".join(lines)) for name, lines in found]


WORDINGS: Final[list[tuple[str, str]]] = [
    (error_id, text)
    for error_id, texts in json.loads((DATA / "error_samples.json").read_text()).items()
    for text in texts
]
"""How every known error reads, in the wordings of old and new versions: ids and texts."""
