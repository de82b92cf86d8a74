"""The conditions of fixes and causes: the words that `when` may use, and what they ask of a log.

A condition consists of atoms, joined by `and`, `or`, `not` and parentheses:

    text has "A", "B"         the message with its values has one of these texts
    log has "NAME"            the log has a sign, see `SIGNS`
    program NAME, NAME        the log is of one of these programs
    platform NAME             where the program ran: Windows or notebook
    {slot} exists             the message has this value
    {slot} is A               also: in A, B; > N; < N; < {slot}; has "A", "B"; matches "REGEX" from end to end
    NAME                      a named condition, see `NAMED`
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import nan
from typing import Final, NamedTuple, TypeVar

from gpumon.errors.entry import Values
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.programs import named_program
from gpumon.errors.signs import has_sign


class Case(NamedTuple):
    """An error in a log, as far as conditions ask.

    Attributes:
        text: The message with its values.
        program: The program whose log it is; empty if unknown.
        platform: Where it ran; empty for Linux outside a notebook.
    """

    text: str
    values: Values
    signs: frozenset[str] = frozenset()
    program: str = ""
    platform: str = ""


_WITHOUT_PYTORCH: Final = frozenset({"JAX", "llama.cpp", "LMDeploy"})
"""Programs in whose processes fixes that call PyTorch cannot be applied."""
_Test = Callable[[Case], bool]
_Part = TypeVar("_Part")
NAMED: Final[Mapping[str, _Test]] = {
    "only killed": lambda case: case.text.strip() == "Killed",
    "a model server": lambda case: named_program(case.program).ends_itself,
    "no command": lambda case: not named_program(case.program).command,
    "own kernels": lambda case: not named_program(case.program).has_kernels,
    "with PyTorch": lambda case: case.program not in _WITHOUT_PYTORCH,
    "trains": lambda case: named_program(case.program).trains,
    "writes a file": lambda case: has_sign("writes a file", str(case.values.get("code_line", ""))),
}
"""Conditions that need more than a comparison."""
_COMPARISONS: Final[Mapping[str, Callable[[str, Sequence[str]], bool]]] = {
    "is": lambda value, wanted: value in wanted,
    "in": lambda value, wanted: value in wanted,
    "has": lambda value, wanted: any(map(value.__contains__, wanted)),
    "matches": lambda value, wanted: lazy_pattern(wanted[0]).fullmatch(value) is not None,
}
_TOKEN: Final = lazy_pattern(r'\s*("(?:[^"\\]|\\.)*"|[(),]|\{\w+\}|[^\s(),"]+|")')
_JOINTS: Final = frozenset({"", "and", "or", ")", ","})


class FixCondition:
    """A condition; called with a case, it says whether it holds.

    Raises:
        ValueError: The text is not a condition.
    """

    def __init__(self, text: str) -> None:
        self.signs: list[str] = []
        self.programs: list[str] = []
        self._text = text
        self._tokens = _TOKEN.findall(text)[::-1]
        self._test = self._any()
        if self._tokens:
            raise self._error("not understood", self._tokens[-1])

    def __call__(self, case: Case) -> bool:
        """Whether it holds."""
        return self._test(case)

    def _error(self, why: str, word: str) -> ValueError:
        return ValueError(f"{why}: {word!r} in {self._text!r}")

    def _next(self) -> str:
        return self._tokens[-1] if self._tokens else ""

    def _take(self) -> str:
        """The next token, without quotes."""
        if not self._tokens:
            raise self._error("incomplete", "")
        token: str = self._tokens.pop()
        return re.sub(r"\\([\"\\])", r"\1", token[1:-1]) if token.startswith('"') and len(token) > 1 else token

    def _any(self) -> _Test:
        parts = self._joined("or", self._all)
        return parts[0] if len(parts) == 1 else lambda case: any(part(case) for part in parts)

    def _all(self) -> _Test:
        parts = self._joined("and", self._atom)
        return parts[0] if len(parts) == 1 else lambda case: all(part(case) for part in parts)

    def _joined(self, word: str, part: Callable[[], _Part]) -> list[_Part]:
        """The parts between which a word stands."""
        parts = [part()]
        while self._next() == word:
            self._take()
            parts.append(part())
        return parts

    def _atom(self) -> _Test:
        word = self._take()
        if word == "not":
            inner = self._atom()
            return lambda case: not inner(case)
        if word == "(":
            inner = self._any()
            if self._take() != ")":
                raise self._error("a parenthesis is open", word)
            return inner
        if word.startswith("{"):
            return self._comparison(word[1:-1])
        return self._place(word)

    def _place(self, word: str) -> _Test:
        """What the log or its message has, where it is from, or a named condition."""
        if word in {"text", "log"} and self._next() == "has":
            self._take()
            names = self._joined(",", self._take)
            if word == "text":
                return lambda case: any(name in case.text for name in names)
            self.signs += names
            return lambda case: not case.signs.isdisjoint(names)
        if word in {"program", "platform"}:
            names = self._joined(",", self._take)
            self.programs += names if word == "program" else []
            return lambda case: getattr(case, word) in names
        while self._next() not in _JOINTS:
            word += f" {self._take()}"
        if word not in NAMED:
            raise self._error("no condition", word)
        return NAMED[word]

    def _comparison(self, slot: str) -> _Test:
        operator = self._take()
        if operator == "exists":
            return lambda case: slot in case.values
        wanted = self._joined(",", self._take)
        if operator in _COMPARISONS:
            compared = _COMPARISONS[operator]
            return lambda case: compared(str(case.values.get(slot, "")), wanted)
        if operator not in {"<", ">"}:
            raise self._error("no comparison", operator)
        limit, sign = wanted[0], 1 if operator == ">" else -1
        other = limit[1:-1] if limit.startswith("{") else ""
        return lambda case: sign * _number(case.values.get(slot)) > sign * _number(case.values.get(other, limit))


condition: Final = lru_cache(maxsize=1024)(FixCondition)
"""Reads a condition, each text once."""


def _number(value: int | str | None) -> float:
    """The number that a value is; what is none is neither less nor more than any other."""
    try:
        return nan if value is None else float(value)
    except ValueError:
        return nan
