"""Prepares the patterns of the catalogue for text that terminals, loggers or copying have broken into lines."""

import re
import string
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from typing import Final, NamedTuple

from gpumon.errors.prefixes import without_prefix

_ESCAPED_SPACE: Final = frozenset({r"\s", r"\ "})
_BOUNDARIES: Final = frozenset({r"\b", r"\A", r"\Z"})
_NON_LETTERS: Final = bytes(set(range(128)) - set(string.ascii_letters.encode()))
_NON_LETTERS_IN_LINE: Final = _NON_LETTERS.replace(b"\n", b"")
_SPACED_LETTERS: Final = bytes(code | 32 if chr(code) in string.ascii_letters else ord(" ") for code in range(256))
_LOWER_CASE: Final = bytes.maketrans(string.ascii_uppercase.encode(), string.ascii_lowercase.encode())
_LOWER_CASE_TEXT: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_SPECIAL: Final = frozenset(".^$*+?{}[]()|")
_GAP: Final = r"\s*"

_TOKEN: Final = re.compile(
    r"""\[\^?\]?(?:\\.|[^\]\\])*\]   # a character set, which is kept
      | \(\?<[=!][^()]*\)           # a lookbehind, which must have a fixed length
      | \(\?P<\w+> | \(\?P=\w+\)     # the start of a named group, or a reference to one
      | \(\?[a-z]*[:=!]             # the start of another group
      | \\. | .""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = re.compile(r"(\\.)")
_QUANTIFIER: Final = re.compile(r"(?:[?*+]|\{\d*,?\d*\})[?+]?")


class Literals(NamedTuple):
    """The texts that every match of a pattern contains.

    Attributes:
        head: The text with which every match starts, which may be empty.
        texts: All texts. The needle is the last one: it was found before, so that another text excludes more lines.
        needle: The text with most letters. A log is searched for needles first, which is fast.
    """

    head: str
    texts: tuple[str, ...]
    needle: str


def squeezed(text: str) -> bytes:
    """The letters of a text in lower case. Needles are searched in these: line breaks and case do not matter."""
    return text.encode("ascii", "ignore").translate(_LOWER_CASE, _NON_LETTERS)


class LetterWords:
    """The runs of letters of a text, in lower case."""

    def __init__(self, text: str) -> None:
        self.words: Final = text.encode("ascii", "ignore").translate(_SPACED_LETTERS).split()
        self.letters: Final = squeezed(text)

    @cached_property
    def vocabulary(self) -> bytes:
        """The different words, separated by spaces: of a log, however long it is, there are few."""
        return b" ".join(set(self.words))


def letter_counts(lines: Iterable[str]) -> Iterator[int]:
    """The number of letters of each line, for at least one line."""
    letters = "\n".join(lines).encode("ascii", "ignore").translate(None, _NON_LETTERS_IN_LINE)
    return map(len, letters.split(b"\n"))


def dense(text: str) -> str:
    """A text without whitespace, which is independent of line breaks."""
    return "".join(text.split())


def folded(text: str) -> str:
    """A text in lower case, of the same length."""
    lower = text.lower()
    return lower if len(lower) == len(text) else text.translate(_LOWER_CASE_TEXT)


def folded_regex(regex: str) -> str:
    """The regular expression for text in lower case."""
    return "".join(_folded_token(atom) + quantifier for atom, quantifier in _tokens(regex))


def _folded_token(atom: str) -> str:
    if atom.startswith("(?P"):
        return atom
    return "".join(part if part.startswith("\\") else part.lower() for part in _ESCAPED.split(atom))


@cache
def exact(regex: str) -> re.Pattern[str]:
    """The pattern for a complete line."""
    return re.compile(regex, re.MULTILINE)


@cache
def wrapped(regex: str) -> re.Pattern[str]:
    """The pattern for lines that were joined without a separator.

    A line break may have replaced a space, so every space is optional, and a word boundary may be missing. What must
    not follow must not follow after a space either, or an optional space before it would leave that space to it.
    """
    atoms: list[str] = []
    ends: list[str] = []
    for atom, quantifier in _tokens(regex):
        if atom == "(?!":
            atoms.append(f"(?!{_GAP}(?:")
            ends.append("))")
        elif atom.startswith("(") and not atom.endswith(")"):
            atoms.append(atom)
            ends.append(")")
        elif atom == ")":
            atoms.append(ends.pop() + quantifier)
        elif atom == " " or atom in _ESCAPED_SPACE:
            atoms.append(_GAP)
        elif atom not in _BOUNDARIES:
            atoms.append(atom + quantifier)
    return re.compile("".join(atoms))


def ends_line(regex: str) -> bool:
    """Whether a regular expression examines if its match ends a line."""
    return any(atom == "$" for atom, _ in _tokens(regex))


@cache
def literals(regex: str) -> Literals:
    """The texts that every match of a regular expression contains. A search for them is much faster than a match."""
    runs, _ = _runs(iter(_tokens(regex)))
    needle = max(map(without_prefix, runs), key=lambda run: len(squeezed(run)))  # a log is searched without prefixes
    return Literals(runs[0], (*dict.fromkeys(run for run in runs if run not in needle), needle), needle)


def _runs(tokens: Iterator[tuple[str, str]]) -> tuple[list[str], str]:
    """The texts that a match of a group contains, and the quantifier of the group."""
    runs, choices = [""], 0
    for atom, quantifier in tokens:
        character = atom[-1] if atom[:-1] in {"", "\\"} else ""
        is_literal = character not in _SPECIAL if atom == character else not character.isalnum()
        if atom == ")":
            return (runs if not choices else [""]), quantifier
        if atom == "|":
            choices += 1
        elif atom.startswith("(") and not atom.endswith(")"):
            inner, repeated = _runs(tokens)
            is_required = not repeated and atom[:3] not in {"(?=", "(?!"}
            if is_required and inner != [""]:
                runs[-1] += inner[0]
                runs += inner[1:]
            else:
                runs.append("")
        elif character and is_literal and not quantifier:
            runs[-1] += character
        elif atom not in _BOUNDARIES:
            runs.append("")
    return (runs if not choices else [""]), ""


def _tokens(regex: str) -> Iterator[tuple[str, str]]:
    """The tokens of a regular expression, each with its quantifier."""
    position = 0
    while position < len(regex):
        token = _TOKEN.match(regex, position)
        assert token is not None  # the last branch matches any character
        quantifier = _QUANTIFIER.match(regex, token.end())
        position = token.end() if quantifier is None else quantifier.end()
        yield token[0], "" if quantifier is None else quantifier[0]
