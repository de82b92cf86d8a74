"""The conditions of fixes and causes: the words that `when` may use, and what they ask of a log.

A condition consists of atoms, joined by `and`, `or`, `not` and parentheses:

    text has "A", "B"         the message with its values has one of these texts
    log has "NAME"            the log has a sign, see `SIGNS`
    program NAME, NAME        the log is of one of these programs
    platform NAME             where the program ran: Windows or notebook
    {slot} exists             the message has this value
    {slot} is A               also: in A, B; > N; < N; < {slot}; has "A", "B"
    NAME                      a named condition, see `NAMED`
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from gpumon.errors.entry import Values
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.programs import PROGRAMS


class Case(NamedTuple):
    """An error in a log, as far as conditions ask.

    Attributes:
        text: The message with its values.
        values: The values.
        signs: The signs of the log that the entry names.
        program: The program whose log it is; empty if unknown.
        platform: Where it ran; empty for Linux outside a notebook.
    """

    text: str
    values: Values
    signs: frozenset[str] = frozenset()
    program: str = ""
    platform: str = ""


Condition = Callable[[Case], bool]

_WITHOUT_PYTORCH: Final = frozenset({"JAX", "llama.cpp", "LMDeploy"})
"""Programs in whose processes fixes that call PyTorch cannot be applied."""
NAMED: Final[Mapping[str, Condition]] = {
    "only killed": lambda case: case.text.strip() == "Killed",
    "a model server": lambda case: case.program in PROGRAMS and PROGRAMS[case.program].ends_itself,
    "no command": lambda case: case.program not in PROGRAMS or not PROGRAMS[case.program].command,
    "own kernels": lambda case: case.program not in PROGRAMS or not PROGRAMS[case.program].has_kernels,
    "with PyTorch": lambda case: case.program not in _WITHOUT_PYTORCH,
    "trains": lambda case: case.program not in PROGRAMS or PROGRAMS[case.program].trains,
}
"""Conditions that need more than a comparison."""

_TOKEN: Final = lazy_pattern(r'\s*(?:"((?:[^"\\]|\\.)*)"|([(),])|(\{\w+\})|([^\s(),"]+))')
_JOINTS: Final = frozenset({"and", "or", ")", ","})


class ConditionError(ValueError):
    """A condition that cannot be read."""


@lru_cache(maxsize=1024)
def condition(text: str) -> Condition:
    """Reads a condition.

    Raises:
        ConditionError: It is not a condition.
    """
    return _Parser(text).parse()


@lru_cache(maxsize=1024)
def names_in(text: str) -> tuple[Sequence[str], Sequence[str]]:
    """The signs of a log and the programs that a condition names."""
    parser = _Parser(text)
    parser.parse()
    return parser.signs, parser.programs


class _Parser:
    """Reads one condition; a token is a text, and whether it was quoted."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._position = 0
        self.signs: list[str] = []
        self.programs: list[str] = []

    def parse(self) -> Condition:
        result = self._any()
        if self._position < len(self._tokens):
            raise ConditionError(f"not understood: {self._tokens[self._position][0]!r} in {self._text!r}")
        return result

    def _word(self) -> str:
        """The next token if it is not quoted; empty at the end."""
        text, is_quoted = self._tokens[self._position] if self._position < len(self._tokens) else ("", False)
        return "" if is_quoted else text

    def _take(self) -> str:
        if self._position >= len(self._tokens):
            raise ConditionError(f"incomplete: {self._text!r}")
        self._position += 1
        return self._tokens[self._position - 1][0]

    def _any(self) -> Condition:
        parts = [self._all()]
        while self._word() == "or":
            self._take()
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else lambda case: any(part(case) for part in parts)

    def _all(self) -> Condition:
        parts = [self._atom()]
        while self._word() == "and":
            self._take()
            parts.append(self._atom())
        return parts[0] if len(parts) == 1 else lambda case: all(part(case) for part in parts)

    def _atom(self) -> Condition:
        word = self._take()
        if word == "not":
            inner = self._atom()
            return lambda case: not inner(case)
        if word == "(":
            inner = self._any()
            if self._take() != ")":
                raise ConditionError(f"a parenthesis is open in {self._text!r}")
            return inner
        if word.startswith("{"):
            return self._comparison(word[1:-1])
        return self._place(word) or self._named(word)

    def _place(self, word: str) -> Condition | None:
        """What the log or its message has, or where it is from; None if the word begins another condition."""
        if word in {"text", "log"} and self._word() == "has":
            self._take()
            names = self._list()
            if word == "text":
                return lambda case: any(name in case.text for name in names)
            self.signs += names
            return lambda case: not case.signs.isdisjoint(names)
        if word not in {"program", "platform"}:
            return None
        names = self._list()
        if word == "platform":
            return lambda case: case.platform in names
        self.programs += names
        return lambda case: case.program in names

    def _comparison(self, slot: str) -> Condition:
        operator = self._take()
        if operator == "exists":
            return lambda case: slot in case.values
        wanted = self._list() if operator in {"is", "in", "has"} else [self._take()]
        if operator in {"is", "in"}:
            return lambda case: str(case.values.get(slot, "")) in wanted
        if operator == "has":
            return lambda case: any(text in str(case.values.get(slot, "")) for text in wanted)
        if operator not in {"<", ">"}:
            raise ConditionError(f"no comparison: {operator!r} in {self._text!r}")
        limit = wanted[0]
        sign = 1 if operator == ">" else -1

        def compares(case: Case) -> bool:
            limits = _numbers(case.values.get(limit[1:-1]) if limit.startswith("{") else limit)
            numbers = _numbers(case.values.get(slot))
            return any(sign * number > sign * other for number in numbers for other in limits)

        return compares

    def _list(self) -> list[str]:
        items = [self._take()]
        while self._word() == ",":
            self._take()
            items.append(self._take())
        return items

    def _named(self, word: str) -> Condition:
        words = [word]
        while self._word() and self._word() not in _JOINTS:
            words.append(self._take())
        name = " ".join(words)
        if name not in NAMED:
            raise ConditionError(f"no condition: {name!r} in {self._text!r}")
        return NAMED[name]


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ConditionError(f"not understood: {text[position:]!r}")
        position = match.end()
        is_quoted = match[1] is not None
        yield (re.sub(r"\\(.)", r"\1", match[1]) if is_quoted else match[match.lastindex or 0]), is_quoted


def _numbers(value: int | str | None) -> Sequence[float]:
    """The number that a value is, if it is one."""
    try:
        return [] if value is None else [float(value)]
    except ValueError:
        return []
