"""Recognizes an exception by its message and by the code that raised it.

Any class, function and argument can be missing, so that the message alone is not known. What shows the cause is that
the code of an installed package, rather than the user's, refers to it; or that the user's own code does.
"""

import re
from collections.abc import Iterator
from typing import Final

from gpumon.errors.entry import KnownError
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.load import ERRORS

MODEL_CODE: Final = "transformers_modules"
"""The package in which transformers keeps code that came with a model."""


def raised_error(message: str, package: str, code: str) -> tuple[KnownError, dict[str, str]] | None:
    """The error that an exception is, with the values in its message; None if its place decides nothing.

    Args:
        message: The class and the message.
        package: The installed package whose code raised it; empty for the user's own code.
        code: The line of the frame that is shown.
    """
    text = f"{message}\n{code}"
    places = {"package", "model-code"} if package == MODEL_CODE else {"package" if package else "own-code"}
    match = next(_matches(text, places), None)
    if match is None:
        return None
    error, values = match
    return error, {**({"raised_by": package} if package else {}), **values}


def _matches(text: str, places: set[str]) -> Iterator[tuple[KnownError, dict[str, str]]]:
    for error in map(ERRORS.__getitem__, ERRORS.index["raised"]):
        for wording in error.wordings:
            if wording.raised_in in places:
                match = lazy_pattern(wording.regex, re.MULTILINE).match(text)
                if match is not None:
                    yield error, {name: value for name, value in match.groupdict().items() if value}
