"""Filters of tables: words, and expressions such as ``user:ann gpu:0-3 mem>10G cpu<5 age>2d cmd~train``.

Every term must hold. A word occurs anywhere in the row; an expression names a column by its id, an alias or the
beginning of its id.
"""

import math
import operator
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Generic

from gpumon.core.text import safe_text
from gpumon.core.units import BYTES_PER_UNIT, SECONDS_PER_UNIT
from gpumon.present.paint.table import Align, Column, Quantity, RowT

MAX_PATTERN: Final = 100
"""Characters of a regular expression."""
MAX_SEARCHED: Final = 200
"""Characters of a text that a regular expression searches."""
MAX_REPETITIONS: Final = 2
"""Repetitions in a regular expression: the time to search one text grows with the power of their number."""
MAX_SEARCH_SECONDS: Final = 0.05
"""Time that regular expressions may take for all rows: the screen waits for it."""

_EXPRESSION: Final = re.compile(r"([A-Za-z][A-Za-z0-9%_-]*)(>=|<=|[:~<>])(.*)", re.DOTALL)
_RANGES: Final = re.compile(r"\d{1,18}(?:-\d{1,18})?(?:,\d{1,18}(?:-\d{1,18})?)*", re.ASCII)
_AMOUNT: Final = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)([A-Za-z%]*)", re.ASCII)
_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_UNITS: Final[Mapping[Quantity, Mapping[str, float]]] = {
    Quantity.BYTES: BYTES_PER_UNIT,
    Quantity.SECONDS: SECONDS_PER_UNIT,
    Quantity.NUMBER: {"": 1, "%": 1},
}
_UNIT_NAMES: Final = {Quantity.BYTES: "10K, 10M, 10G or 10T", Quantity.SECONDS: "10s, 10m, 10h or 10d"}
_REPETITION: Final = re.compile(r"[*+]|\{[^}]*\}")
_ESCAPE_OR_SET: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_REPEATED_GROUP: Final = re.compile(r"\)\s*(?:[*+]|\{)")


class FilterError(ValueError):
    """A filter cannot be applied; the text is a sentence for the user."""


class _TimedSearch:
    """A regular expression that is applied to many texts within `MAX_SEARCH_SECONDS`."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._seconds = 0.0

    def matches(self, text: str) -> bool:
        """Whether the beginning of a text contains the pattern.

        Raises:
            FilterError: The time is over.
        """
        started = time.perf_counter()
        match = self._pattern.search(text[:MAX_SEARCHED])
        self._seconds += time.perf_counter() - started
        if self._seconds > MAX_SEARCH_SECONDS:
            raise FilterError("The regular expression takes too long.")
        return match is not None


class RowTexts(Generic[RowT]):
    """The texts of rows in which words are searched, in lower case: each is made once, and only if it is needed.

    Columns of texts, which are aligned left, are searched before those of numbers, which few words are for.
    """

    def __init__(self, columns: Sequence[Column[RowT]]) -> None:
        self._parts: list[tuple[list[Column[RowT]], dict[int, str]]] = [
            ([column for column in columns if column.align is align], {}) for align in (Align.LEFT, Align.RIGHT)
        ]
        """Columns, and their joined texts by the id of the row's object: the caller keeps the rows."""

    def contains(self, row: RowT, word: str) -> bool:
        """Whether a cell of a row contains a word in lower case."""
        for columns, texts in self._parts:
            text = texts.get(id(row))
            if text is None:
                text = texts[id(row)] = "\n".join([column.text_of(row) for column in columns]).lower()
            if word in text:
                return True
        return False


def parse_filter(
    text: str, columns: Sequence[Column[RowT]], texts: RowTexts[RowT]
) -> Callable[[Sequence[RowT]], Sequence[RowT]]:
    """Parse a filter; returns what selects the rows that match it.

    Args:
        text: What the user typed.
        columns: All columns of the table.
        texts: The texts of the rows.

    Raises:
        FilterError: An expression is not valid.
    """
    words: list[str] = []
    tests: list[Callable[[RowT], bool]] = []
    for term in text.split():
        match = _EXPRESSION.fullmatch(term)
        if match is None:
            words.append(term.lower())
        else:
            tests.append(_expression(_column(match[1], columns), match[2], match[3], term))

    def select(rows: Sequence[RowT]) -> Sequence[RowT]:
        for test in tests:
            rows = [row for row in rows if test(row)]
        for word in words:
            rows = [row for row in rows if texts.contains(row, word)]
        return rows

    return select


def _column(name: str, columns: Sequence[Column[RowT]]) -> Column[RowT]:
    """The column with an id or alias, or the first one whose id begins like that.

    Raises:
        FilterError: There is none.
    """
    wanted = name.lower()
    for column in columns:
        if wanted == column.id or wanted in column.aliases:
            return column
    for column in columns:
        if column.id.startswith(wanted):
            return column
    names = ", ".join(column.id for column in columns)
    raise FilterError(f"No column {safe_text(name, 20)}. Columns: {names}.")


def _expression(column: Column[RowT], sign: str, value: str, term: str) -> Callable[[RowT], bool]:
    """The test of one expression.

    Raises:
        FilterError: The value is not valid.
    """
    if sign == "~":
        search = _TimedSearch(_pattern(value))
        return lambda row: search.matches(column.text_of(row))
    if sign != ":":
        limit = _amount(column, value, term)
        compare, number_of = _COMPARISONS[sign], _number_of(column)
        return lambda row: (number := number_of(row)) is not None and compare(number, limit)
    if column.sort_key is not None and _RANGES.fullmatch(value):
        ranges, number_of = list(_ranges(value)), _number_of(column)

        def is_in_range(row: RowT) -> bool:
            number = number_of(row)
            if number is None:
                return value in column.text_of(row)
            whole = math.floor(number)
            for low, high in ranges:  # noqa: SIM110 - a generator for each of thousands of rows takes too long
                if low <= whole <= high:
                    return True
            return False

        return is_in_range
    wanted = value.lower()
    return lambda row: wanted in column.text_of(row).lower()


def _number_of(column: Column[RowT]) -> Callable[[RowT], float | None]:
    """Returns the number by which a row is sorted; None if it is missing or a text."""
    sort_key = column.sort_key
    if sort_key is None:
        return lambda _: None

    def number_of(row: RowT) -> float | None:
        value = sort_key(row)
        return None if isinstance(value, str) else value

    return number_of


def _ranges(text: str) -> Iterator[tuple[int, int]]:
    for part in text.split(","):
        low, _, high = part.partition("-")
        yield int(low), int(high or low)


def _amount(column: Column[RowT], text: str, term: str) -> float:
    """The number in a comparison, in the unit by which the column is sorted.

    Raises:
        FilterError: It is no number, or its unit is missing or unknown.
    """
    if column.sort_key is None:
        raise FilterError(f"{safe_text(term, 40)}: {column.id} cannot be compared.")
    match = _AMOUNT.fullmatch(text)
    units = _UNITS[column.quantity]
    if match is not None and (not float(match[1]) or match[2].lower() in units):
        return float(match[1]) * units.get(match[2].lower(), 1)
    example = _UNIT_NAMES.get(column.quantity, "a number")
    raise FilterError(f"{safe_text(term, 40)}: expected {example}.")


def _pattern(text: str) -> re.Pattern[str]:
    """The regular expression of a filter.

    Raises:
        FilterError: It is not valid, too long, or could take too long.
    """
    if len(text) > MAX_PATTERN:
        raise FilterError(f"A regular expression may have {MAX_PATTERN} characters.")
    bare = _ESCAPE_OR_SET.sub("x", text)
    if _REPEATED_GROUP.search(bare):
        raise FilterError("A group in a regular expression may not be repeated.")
    if len(_REPETITION.findall(bare)) > MAX_REPETITIONS:
        raise FilterError(f"A regular expression may have {MAX_REPETITIONS} repetitions.")
    try:
        return re.compile(text, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise FilterError(f"Not a regular expression: {safe_text(str(error), 60)}.") from None
