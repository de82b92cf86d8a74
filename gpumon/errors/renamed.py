"""What stands for a name that a package moved, renamed or removed, and the last version that still has it."""

from typing import Final

from gpumon.core.text_table import table
from gpumon.errors.advice import Advice, short_path
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.reading import LogFailure

_MISSING: Final = lazy_pattern(
    r"(?<!partially initialized module ')\b(?P<owner1>[\w.]+)'? (?:object )?has no attribute '?(?P<name1>\w+)"
    r"|No (?P<owner2>[\w.]+) attribute (?P<name2>\w+)|cannot import name '(?P<name3>\w+)' from '(?P<owner3>[\w.]+)'"
    r"|(?P<owner4>[\w.<>]+)\(\) got an unexpected keyword argument '(?P<argument4>\w+)'"
    r"|[Nn]o module named '?(?:(?P<owner5>[\w.]+)\.)?(?P<name5>\w+)|access (?P<owner6>\w+)\.(?P<name6>\w+), but this"
    r"|[`'](?:(?P<owner7>\w+)\.)?(?P<name7>\w+)[`'] (?:was|has been) (?:re)?moved"
    r"|(?:passed to (?P<owner8>\w+): \{|rgument\(s\) not recognized: \{|ument not understood:', )'(?P<argument8>\w+)'"
)


def renamed(root: LogFailure) -> list[Advice]:
    """What to write instead of a name that the installed version of a package does not have, if it is known."""
    missing = _MISSING.search(root.raised.first_words) if root.is_raised else None
    if missing is None:
        return []
    part = {key[:-1]: text for key, text in missing.groupdict().items() if text}
    owner, name = part.get("owner", ""), part.get("name") or f"{part['argument']}="
    old = name if "argument" in part else f"{owner}.{name}".lstrip(".")
    for row in table("gpumon.errors", "renamed"):
        owners, _, rest = row.partition(": ")
        pairs, _, kept = rest.partition(" | ")
        for names, _, new in (pair.partition(" => ") for pair in pairs.split("; ")):
            if name in names.split() and lazy_pattern(owners).fullmatch(owner):
                return _advice(root, old, new.replace("{name}", name).replace("{owner}", owner), kept)
    return []


def _advice(root: LogFailure, old: str, new: str, kept: str) -> list[Advice]:
    """What to change in the user's own line, or in the package that still uses the name."""
    frame, package, code = root.frame, root.raised.package, root.raised.raising.code if root.raised.raising else ""
    if root.name == "ModuleNotFoundError" and code and "import" not in code:
        return []  # a pickled file names the module
    is_passed_on = code.startswith("raise ") or ("**" in code and old not in code)
    pin = [Advice(f"Install a version that still has {old}.", f"python -m pip install '{kept}'")] if kept else []
    if frame is None:
        return [Advice(f"Write {new} in place of {old}, or upgrade the package that uses it."), *pin]
    if frame.is_own and (not package or package in frame.file or is_passed_on):
        return [Advice(f"Write {new} in place of {old} at {short_path(frame.file)}:{frame.line}."), *pin]
    user = package or "the package that the traceback names last"
    return [*pin, Advice(f"Upgrade {user}, which is too old, or write {new} in place of {old} in its code.")]
