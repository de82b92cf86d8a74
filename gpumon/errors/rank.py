"""Which fixes and causes of an entry a log permits, and in which order."""

from typing import Final

from gpumon.errors.conditions import Case, condition, signs_in
from gpumon.errors.entry import Fix, KnownError, Values

_PLACES: Final = ("signs", "program", "platform")
"""Values that say where the error stands, and are no part of its message."""


def case_of(text: str, values: Values) -> Case:
    """A match as conditions see it.

    Args:
        text: The line with the error.
        values: The values in the message, which may be from further lines of it, and where it stands.
    """
    message = "\n".join((text, *(str(value) for name, value in values.items() if name not in _PLACES)))
    signs, program, platform = (str(values.get(name, "")) for name in _PLACES)
    return Case(message, values, frozenset(filter(None, signs.split(", "))), program, platform)


def signs_of(error: KnownError) -> tuple[str, ...]:
    """The signs of a log on which the order of the fixes of an error, or its causes, depend."""
    conditions = (*(fix.when for fix in error.fixes if fix.when), *(when for when, _ in error.causes_when))
    return tuple(dict.fromkeys(sign for text in conditions for sign in signs_in(text)))


def fixes_of(error: KnownError, case: Case) -> list[Fix]:
    """The fixes of an error: those for this log, the general ones, and those that are better for another log.

    A fix that states what only another log shows would be false, and one for another reason does not help.
    """
    holding = [fix for fix in error.fixes if fix.when and condition(fix.when)(case)]
    general = [fix for fix in error.fixes if not fix.when]
    if holding and error.has_one_reason:
        return [*holding, *general]
    others = [fix for fix in error.fixes if fix.when and not fix.is_hidden_otherwise and fix not in holding]
    return [*holding, *general, *others]


def causes_of(error: KnownError, case: Case) -> tuple[str, ...]:
    """The causes that a log permits, most frequent first."""
    return tuple(cause for when, cause in error.causes_when if condition(when)(case)) or error.causes
