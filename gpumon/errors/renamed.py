"""What stands for a name that a package moved, renamed or removed, and the last version that still has it."""

from typing import Final

from gpumon.core.text_table import table
from gpumon.errors.advice import Advice, short_path
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.reading import LogFailure

_MISSING: Final = lazy_pattern(
    r"(?:module |type object )?'(?P<owner>[\w.]+)' (?:object )?has no attribute '(?P<name>\w+)'"
    r"|cannot import name '(?P<imported>\w+)' from (?:partially initialized module )?'(?P<module>[\w.]+)'"
    r"|(?P<function>[\w.<>]+)\(\) got an unexpected keyword argument '(?P<argument>\w+)'"
    r"|[Nn]o module named '?(?:(?P<parent>[\w.]+)\.)?(?P<child>\w+)"
    r"|[`'](?P<alias>\w+)\.(?P<gone>\w+)[`'] was removed"
)


def renamed(root: LogFailure) -> list[Advice]:
    """What to write instead of a name that the installed version of a package does not have, if it is known."""
    missing = _MISSING.search(root.raised.first_words) if root.is_raised else None
    if missing is None:
        return []
    part = missing.groupdict("")
    owner = part["owner"] or part["module"] or part["function"] or part["parent"] or part["alias"]
    name = part["name"] or part["imported"] or part["argument"] or part["child"] or part["gone"]
    key = f"{name}=" if part["argument"] else name
    for row in table("gpumon.errors", "renamed"):
        head, _, rest = row.partition(" => ")
        owners, _, names = head.partition(": ")
        if key in names.split() and lazy_pattern(owners).fullmatch(owner):
            new, _, kept = rest.partition(" | ")
            return _advice(root, name, new.replace("{name}", name), kept)
    return []


def _advice(root: LogFailure, name: str, new: str, kept: str) -> list[Advice]:
    """What to change in the user's own line, or in the package that still uses the name."""
    pin = [Advice(f"Or install a version that still has {name}.", f"python -m pip install '{kept}'")] if kept else []
    frame, package = root.frame, root.raised.package
    if frame is None or not frame.is_own or (package and package not in frame.file):
        text = f"Upgrade {package or 'the package that the traceback names last'}, which is older than what it uses:"
        return [Advice(f"{text} {name} is now {new}."), *pin]
    return [Advice(f"Write {new} in place of {name} at {short_path(frame.file)}:{frame.line}."), *pin]
