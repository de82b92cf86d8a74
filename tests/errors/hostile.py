"""Lines that make a reader of logs slow: repeated and incomplete errors, all of them in one line."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from gpumon.errors.entry import Wording
from gpumon.errors.load import ERRORS
from gpumon.errors.patterns import literals, squeezed
from tests.errors.texts import WORDINGS


@cache
def needle_of(pattern: Wording) -> str:
    """The text that every match contains."""
    return literals(pattern.regex).needle


PATTERNS: Final[tuple[tuple[str, Wording], ...]] = tuple(
    (f"{error.id} {number}", pattern)
    for error in ERRORS.values()
    for number, pattern in enumerate(error.wordings)
    if not pattern.raised_in
)
"""Every pattern of the catalogue, by the id of its error and its number."""
_LINE_CHARACTERS: Final = 4000


def all_needles() -> str:
    """One line."""
    return " ".join(dict.fromkeys(needle_of(pattern) for _, pattern in PATTERNS))


def repeated(pattern: Wording) -> str:
    """A line full of the needle."""
    return (needle_of(pattern) + " ") * (_LINE_CHARACTERS // len(needle_of(pattern)))


@cache
def almost(pattern: Wording) -> str:
    """A line of a log that contains the letters of the needle, but not the error."""
    return "2026-11-20 12:00:01,123 ERROR trainer.py:88 " + next(
        text for text in _changed(matched(pattern)) if _is_almost(pattern, text)
    )


@cache
def matched(pattern: Wording) -> str:
    """A text that the pattern matches: of a sample, or the needle, for the name of an error."""
    texts = (text for _, text in WORDINGS if needle_of(pattern) in text)
    matches = (re.search(pattern.regex, text, re.MULTILINE) for text in texts)
    return next((match[0] for match in matches if match is not None), needle_of(pattern))


def _changed(text: str) -> Iterator[str]:
    """The text without one of its characters, the last one first, or with one more."""
    yield from (text[:index] + text[index + 1 :] for index in reversed(range(len(text))))
    yield f"{text}s"


def _is_almost(pattern: Wording, text: str) -> bool:
    return squeezed(needle_of(pattern)) in squeezed(text) and re.search(pattern.regex, text, re.MULTILINE) is None
