"""Which fixes and causes of an entry a log permits, in which order, and in which form."""

from collections import ChainMap
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from itertools import chain
from types import MappingProxyType
from typing import Final

from gpumon.errors.conditions import Case, condition, holds
from gpumon.errors.entry import EXAMPLE_SCRIPT, Code, Fix, KnownError, Values
from gpumon.errors.facts.messages import address
from gpumon.errors.facts.platforms import NOTEBOOK, WINDOWS, for_notebook, for_windows, is_for_linux
from gpumon.errors.load import filled, filled_text
from gpumon.errors.programs import named_program

_CASE: Final = ("signs", "program", "platform")
_OF_LOG: Final = (
    "printed_batch",
    "half_batch",
    "parent",
    "foreign",
    "here",
    "started",
    "evaluates",
    "said",
    "used_port",
)
INTERNAL: Final = (
    "at",
    "raising_line",
    "code_line",
    "marked",
    "printed",
    "grown",
    "operand",
    "raiser",
    "installed",
    *_OF_LOG,
)
"""Values that only conditions and slots of fixes use."""
PLACES: Final = (*_CASE, "operands", *INTERNAL)
"""Values that say where the error stands, and are no part of its message."""
_NO_VALUES: Final[Values] = MappingProxyType({})


def case_of(error: KnownError, text: str = "", values: Values = _NO_VALUES, more: Values = _NO_VALUES) -> Case:
    """A match as conditions and slots see it; without arguments, an entry that no log has.

    Args:
        error: The entry.
        text: The line with the error.
        values: The values in the message, which may be from further lines of it, and where it stands.
        more: What is known beyond the message, such as why memory ran out.
    """
    message = "\n".join((text, *(str(value) for name, value in values.items() if name not in PLACES)))
    signs, program, platform = (str(values.get(name, "")) for name in _CASE)
    command = named_program(program).command
    run = {"run": Code(command)} if command else {}
    functions = (name.split(".") for name in error.facts)
    modules = ((import_module(f"gpumon.errors.facts.{module}"), function) for module, function in functions)
    facts = [getattr(module, function)(values, message) for module, function in modules]
    known: dict[str, int | str] = {**values, **address(values), **run, **dict(ChainMap(*facts)), **more}
    return Case(message, known, frozenset(filter(None, signs.split(", "))), program, platform)


def signs_of(error: KnownError) -> frozenset[str]:
    """The signs of a log on which the fixes of an error, or its causes, depend."""
    return _signs_in((*(fix.when for fix in error.fixes if fix.when), *(when for when, _ in error.causes_when)))


@lru_cache(maxsize=256)
def _signs_in(texts: tuple[str, ...]) -> frozenset[str]:
    return frozenset(chain.from_iterable(condition(text).signs for text in texts))


def fixes_of(error: KnownError, case: Case) -> tuple[Fix, ...]:
    """The fixes of an error for its log: those for this log, then the others in the order of the entry.

    A fix that states what only another log shows would be false, and one for another reason does not help.
    """
    permitted = [holds(fix.when, case) for fix in error.fixes]
    pairs = list(zip(error.fixes, permitted, strict=True))
    first = [fix for fix, is_true in pairs if fix.is_first and is_true]
    is_decided = bool(first) and error.has_one_reason
    others = [
        fix
        for fix, is_true in pairs
        if (is_true and not fix.is_first) or not (is_true or fix.is_hidden_otherwise or is_decided)
    ]
    shown: dict[tuple[str, str], Fix] = {}  # a fix may be general, and also the first one for this log
    for fix in filter(None, (filled(fix, case.values) for fix in (*first, *others))):
        shown.setdefault((fix.text, fix.code), fix)
    started = str(case.values.get("started") or EXAMPLE_SCRIPT)
    placed = _for_platform(shown.values(), case.platform)
    return tuple(fix._replace(code=fix.code.replace(EXAMPLE_SCRIPT, started)) for fix in placed)


def causes_of(error: KnownError, case: Case) -> tuple[str, ...]:
    """The causes that a log permits, most frequent first."""
    own = (filled_text(cause, case.values) for when, cause in error.causes_when if holds(when, case))
    return tuple(filter(None, own)) or error.causes


def _for_platform(fixes: Iterable[Fix], platform: str) -> list[Fix]:
    """The fixes with the commands of a platform; on Windows, those for Linux last."""
    if platform == NOTEBOOK:
        cells = [(fix, *for_notebook(fix.code)) for fix in fixes]
        return [fix._replace(text=f"{fix.text}{ending}", code=code) for fix, code, ending in cells]
    if platform == WINDOWS:
        ranked = sorted(fixes, key=lambda fix: is_for_linux(fix.code))
        return [fix._replace(code=for_windows(fix.code)) for fix in ranked]
    return list(fixes)
