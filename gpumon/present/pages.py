"""The pages of the documentation: inside the installed package, or next to the package in a checkout."""

import re
from functools import cache
from pathlib import Path
from typing import Final

_PICTURE: Final = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_TITLE: Final = re.compile(r"# (.+)")


def page_text(name: str) -> str:
    """A page in Markdown, without its pictures; a sentence if there is no such page.

    Args:
        name: Its file, such as ``memory.md``.
    """
    try:
        return _PICTURE.sub("", (_folder() / Path(name).name).read_text("utf-8"))
    except OSError:
        return f"This installation of gpumon has no page {name}."


@cache
def page_titles() -> dict[str, str]:
    """The title of every page, by its file."""
    titles = {}
    for path in sorted(_folder().glob("*.md")):
        with path.open(encoding="utf-8") as page:
            match = _TITLE.match(page.readline())
        titles[path.name] = path.stem if match is None else match[1].replace("`", "").strip()
    return titles


def _folder() -> Path:
    package = Path(__file__).resolve().parents[1]
    installed = package / "docs"
    return installed if installed.is_dir() else package.parent / "docs"
