"""Code for the place where the program ran: Windows has other commands than Linux, and a notebook has cells."""

import re
from collections.abc import Iterable
from typing import Final

from gpumon.core.text_table import table
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.signs import sign

WINDOWS: Final = "Windows"
NOTEBOOK: Final = "notebook"

_ASSIGNMENT: Final = lazy_pattern(r"([A-Z][A-Z\d_]*)=(\"[^\"\n]*\"|'[^'\n]*'|\S*) ")
_ASSIGNMENTS: Final = lazy_pattern(rf"(?P<names>(?:{_ASSIGNMENT.pattern})+)(?=[a-z])")


def platform_of(lines: Iterable[str]) -> str:
    """Where the program ran, if that is Windows or a notebook; empty for others."""
    text = "\n".join(lines)
    # WSL has paths of both.
    if sign("windows").pattern.search(text) is not None and sign("linux").pattern.search(text) is None:
        return WINDOWS
    return NOTEBOOK if sign("notebook").pattern.search(text) is not None else ""


def for_notebook(code: str) -> tuple[str, str]:
    """The code as cells of a notebook, and what else to do."""
    assignments = _ASSIGNMENTS.match(code)
    if assignments is not None and "train.py" in code[assignments.end() :]:
        settings = "\n".join(f"%env {variable}" for variable in assignments["names"].split())
        return settings, " Set it in the first cell, after a restart of the kernel."
    pip = code.removeprefix("python -m ")
    if pip.startswith("pip install"):
        return f"%{pip}", " Then restart the kernel."
    return (f"!{code}" if sign("shell command").pattern.fullmatch(code) else code), ""


def is_for_linux(code: str) -> bool:
    """Whether the code changes what exists only on Linux."""
    return sign("changes linux").pattern.search(code) is not None


def for_windows(code: str) -> str:
    """The code for Windows, or an empty text if it is only for Linux."""
    assignments = _ASSIGNMENTS.match(code)
    if assignments is not None:
        pairs = (pair for pair in _ASSIGNMENT.findall(assignments["names"]) if not pair[1].startswith("/usr/"))
        names = "".join(f"$env:{name} = {_quoted(value)}; " for name, value in pairs)
        code = f"{names}{code[assignments.end() :]}"
    for row in table("gpumon.errors", "windows"):
        regex, _, replacement = row.partition(" => ")
        code = re.sub(regex, replacement, code)
    if is_for_linux(code):
        return code
    # What these commands are for is possible on Windows, under another name.
    return "" if sign("shows linux").pattern.search(code) else code.replace(" && ", "; ")  # PowerShell 5 has no &&


def _quoted(value: str) -> str:
    return value if value.startswith(("'", '"')) and value[-1] == value[0] else f"'{value}'"
