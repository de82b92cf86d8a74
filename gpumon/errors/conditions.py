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

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import nan
from typing import Final, NamedTuple

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
_WORD: Final = r'(?:"(?:[^"\\]|\\.)*"|[^\s(),"]+)'
_WORDS: Final = rf"({_WORD}(?:, {_WORD})*)"
_ATOM: Final = lazy_pattern(
    rf"(text|log) has {_WORDS}|(program|platform) {_WORDS}"
    rf"|\{{(\w+)\}} (?:exists|(is|in|has|matches|[<>]) {_WORDS})|\b(?:{'|'.join(NAMED)})\b"
)


class FixCondition(NamedTuple):
    """A condition, with the signs of a log for which it asks.

    Attributes:
        test: Whether it holds in a case.
    """

    test: _Test
    signs: frozenset[str]


@lru_cache(maxsize=1024)
def condition(text: str) -> FixCondition:
    """Reads a condition, each text once: without its atoms, it is an expression of Python.

    Raises:
        ValueError: The text is not a condition.
    """
    atoms = list(_ATOM.finditer(text))
    try:
        expression = ast.parse(_ATOM.sub(lambda atom: f"_{atom.start()}", text), mode="eval").body
        test = _joined(expression, {f"_{atom.start()}": _atom(atom) for atom in atoms})
    except (KeyError, SyntaxError) as error:
        raise ValueError(f"no condition: {error} in {text!r}") from None
    return FixCondition(test, frozenset().union(*(_words(atom[2]) for atom in atoms if atom[1] == "log")))


def holds(text: str, case: Case) -> bool:
    """Whether a condition holds in a case, as an empty one always does."""
    return not text or condition(text).test(case)


def _joined(node: ast.expr, atoms: Mapping[str, _Test]) -> _Test:
    """What an expression of atoms says."""
    if isinstance(node, ast.BoolOp):
        of_all, parts = isinstance(node.op, ast.And), [_joined(part, atoms) for part in node.values]
        return lambda case: (all if of_all else any)(part(case) for part in parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _joined(node.operand, atoms)
        return lambda case: not inner(case)
    return atoms[ast.unparse(node)]


def _words(text: str) -> Sequence[str]:
    """The words of a list, without their quotes."""
    words = re.findall(_WORD, text)
    return [re.sub(r"\\([\"\\])", r"\1", word[1:-1]) if word[0] == '"' else word for word in words]


def _atom(atom: re.Match[str]) -> _Test:
    """What the log or its message has, where it is from, how a value compares, or a named condition."""
    has, texts, place, names, slot, operator, values = atom.groups()
    wanted = _words(texts or names or values or "")
    if has:
        of_log = has == "log"
        return lambda case: not case.signs.isdisjoint(wanted) if of_log else any(map(case.text.__contains__, wanted))
    if place:
        return lambda case: getattr(case, place) in wanted
    if slot is None:
        return NAMED[atom[0]]
    if operator is None:
        return lambda case: slot in case.values
    if operator in _COMPARISONS:
        compared = _COMPARISONS[operator]
        return lambda case: compared(str(case.values.get(slot, "")), wanted)
    limit, sign = wanted[0], 1 if operator == ">" else -1
    other = limit.strip("{}")
    return lambda case: sign * _number(case.values.get(slot)) > sign * _number(case.values.get(other, limit))


def _number(value: int | str | None) -> float:
    """The number that a value is; what is none is neither less nor more than any other."""
    try:
        return nan if value is None else float(value)
    except ValueError:
        return nan
