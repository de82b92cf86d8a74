"""Prepares the patterns of the catalogue for text that terminals, loggers or copying have broken into lines."""

import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final, NamedTuple

from gpumon.diagnosis.known import Pattern

_ESCAPED_SPACE: Final = frozenset({r"\s", r"\ "})
_BOUNDARIES: Final = frozenset({r"\b", r"\A", r"\Z"})
_NON_LETTERS: Final = bytes(set(range(128)) - set(string.ascii_letters.encode()))
_NON_LETTERS_IN_LINE: Final = _NON_LETTERS.replace(b"\n", b"")
_SPECIAL: Final = frozenset(".^$*+?{}[]()|")
_PART_LETTERS: Final = 8
"""Shorter parts are shared by more needles, but also occur in ordinary words."""
_GAP: Final = r"\s*"

_TOKEN: Final = re.compile(
    r"""\[\^?\]?(?:\\.|[^\]\\])*\]   # a character set, which is kept
      | \(\?<[=!][^()]*\)           # a lookbehind, which must have a fixed length
      | \(\?P<\w+>                  # the start of a named group
      | \\. | .""",
    re.VERBOSE | re.DOTALL,
)
_QUANTIFIER: Final = re.compile(r"(?:[?*+]|\{\d*,?\d*\})[?+]?")


class Literals(NamedTuple):
    """The texts that every match of a pattern contains.

    Attributes:
        head: The text with which every match starts, which may be empty.
        texts: All texts. The needle is the last one: it was found before, so that another text excludes more lines.
    """

    head: str
    texts: tuple[str, ...]


def squeezed(text: str) -> bytes:
    """The letters of a text. Needles are searched in these, which is fast and independent of line breaks."""
    return text.encode("ascii", "ignore").translate(None, _NON_LETTERS)


def letter_counts(lines: Iterable[str]) -> Iterator[int]:
    """The number of letters of each line, for at least one line."""
    letters = "\n".join(lines).encode("ascii", "ignore").translate(None, _NON_LETTERS_IN_LINE)
    return map(len, letters.split(b"\n"))


def dense(text: str) -> str:
    """A text without whitespace, which is independent of line breaks."""
    return "".join(text.split())


def shared_parts(needles: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    """Parts of needles, each with the needles that contain it, so that one search stands for several needles."""
    remaining = set(needles)
    shared: dict[bytes, list[bytes]] = {}
    while remaining:
        counts = Counter(part for needle in remaining for part in _parts(needle))
        part, count = max(counts.items(), key=lambda item: (item[1], item[0]))
        if count == 1:
            return shared | {needle: [needle] for needle in sorted(remaining)}
        shared[part] = sorted(needle for needle in remaining if part in needle)
        remaining.difference_update(shared[part])
    return shared


def _parts(needle: bytes) -> set[bytes]:
    return {needle[start : start + _PART_LETTERS] for start in range(max(1, len(needle) - _PART_LETTERS + 1))}


@cache
def exact(regex: str) -> re.Pattern[str]:
    """The pattern for a complete line."""
    return re.compile(regex, re.MULTILINE)


@cache
def wrapped(regex: str) -> re.Pattern[str]:
    """The pattern for lines that were joined without a separator.

    A line break may have replaced a space, so every space is optional, and a word boundary may be missing.
    """
    atoms: list[str] = []
    for atom, quantifier in _tokens(regex):
        if atom == " " or atom in _ESCAPED_SPACE:
            atoms.append(_GAP)
        elif atom not in _BOUNDARIES:
            atoms.append(atom + quantifier)
    return re.compile("".join(atoms))


def literals(pattern: Pattern) -> Literals:
    """The texts that every match of a pattern contains. A search for them is much faster than the pattern."""
    runs = [""]
    depth = 0
    for atom, quantifier in _tokens(pattern.regex):
        depth += atom.startswith("(") and not atom.endswith(")")
        depth -= atom == ")"
        character = atom[-1] if atom[:-1] in {"", "\\"} else ""
        is_literal = character not in _SPECIAL if atom == character else not character.isalnum()
        if depth == 0 and atom == "|":
            return Literals("", (pattern.needle,))
        if depth == 0 and character and is_literal and not quantifier:
            runs[-1] += character
        elif atom not in _BOUNDARIES:
            runs.append("")
    return Literals(runs[0], (*dict.fromkeys(run for run in runs if run not in pattern.needle), pattern.needle))


def _tokens(regex: str) -> Iterator[tuple[str, str]]:
    """The tokens of a regular expression, each with its quantifier."""
    position = 0
    while position < len(regex):
        token = _TOKEN.match(regex, position)
        assert token is not None  # the last branch matches any character
        quantifier = _QUANTIFIER.match(regex, token.end())
        position = token.end() if quantifier is None else quantifier.end()
        yield token[0], "" if quantifier is None else quantifier[0]
