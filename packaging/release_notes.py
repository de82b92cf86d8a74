"""Print the section of CHANGELOG.md for a version, as the notes of its release.

python packaging/release_notes.py 0.1.0
"""

import sys
from pathlib import Path
from typing import Final

_CHANGELOG: Final = Path(__file__).resolve().parents[1] / "CHANGELOG.md"


def notes(changelog: str, version: str) -> str:
    """The text below the heading of a version, up to the next heading.

    Raises:
        ValueError: The changelog has no such section, or it is empty.
    """
    for section in changelog.split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        if heading.startswith(f"[{version}]"):
            if not text.strip():
                raise ValueError(f"CHANGELOG.md says nothing about {version}")
            return f"{text.strip()}\n"
    raise ValueError(f"CHANGELOG.md has no section {version}")


if __name__ == "__main__":
    sys.stdout.write(notes(_CHANGELOG.read_text("utf-8"), sys.argv[1]))
