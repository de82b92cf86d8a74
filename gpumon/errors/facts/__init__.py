"""Values that follow from others: what needs arithmetic or a table. An entry names the functions that it uses.

A function takes the values and the text of a message, and returns further values under the names of slots. It knows
neither entries nor fixes.
"""

from collections.abc import Mapping
from importlib import import_module

from gpumon.errors.entry import KnownError, Values


def facts_of(error: KnownError, values: Values, text: str) -> Mapping[str, int | str]:
    """The values that the functions of an entry add."""
    facts: dict[str, int | str] = {}
    for name in error.facts:
        module, _, function = name.partition(".")
        facts |= getattr(import_module(f"{__name__}.{module}"), function)(values, text)
    return facts
