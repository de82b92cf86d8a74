"""Print the notes of a release: the section of CHANGELOG.md for its tag, or, without one, for what is not released.

python packaging/release_notes.py v0.1.0
"""

import re
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[1]


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


def version_of(tag: str, source: str) -> str:
    """The version that a tag releases.

    Raises:
        ValueError: It is not the version in the source of the package, the only place that has it.
    """
    version = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)[0]
    if tag != f"v{version}":
        raise ValueError(f"the tag {tag} is not v{version}")
    return str(version)


if __name__ == "__main__":
    tags = sys.argv[1:]
    name = version_of(tags[0], (_ROOT / "gpumon/__init__.py").read_text("utf-8")) if tags else "Unreleased"
    sys.stdout.write(notes((_ROOT / "CHANGELOG.md").read_text("utf-8"), name))
