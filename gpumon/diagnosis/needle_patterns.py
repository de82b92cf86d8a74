"""The patterns that have the same needle: which of them can match a line, without trying each."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from gpumon.diagnosis.candidate import CasedText, PreparedPattern
from gpumon.diagnosis.patterns import folded, ignores_digits

_MIN_PATTERNS: Final = 8
"""Patterns from which on looking a text up is faster than searching the line for the text of each."""
_MAX_PLACES: Final = 8
"""Places of a line where texts are looked up; in a line with more, the text of each pattern is searched."""


class _LiteralTable:
    """Patterns by the first text that each requires.

    Args:
        prefix: The text with which all these texts start.
        literals: The texts in lower case, each with its pattern.
    """

    def __init__(self, prefix: str, literals: Sequence[tuple[str, PreparedPattern]]) -> None:
        self._prefix = prefix
        self._literals = literals
        self._by_literal: dict[int, dict[str, list[PreparedPattern]]] = {}
        for literal, pattern in literals:
            self._by_literal.setdefault(len(literal), {}).setdefault(literal, []).append(pattern)

    @classmethod
    def of(cls, patterns: Sequence[PreparedPattern]) -> "_LiteralTable | None":
        """The table of some patterns, or None if their texts have no common start."""
        literals = [(folded(pattern.literals[0]), pattern) for pattern in patterns]
        prefix = _common_start([literal for literal, _ in literals])
        return cls(prefix, literals) if prefix else None

    def possible(self, lower: str) -> Sequence[PreparedPattern]:
        """The patterns whose text a line in lower case contains."""
        if lower.count(self._prefix) > _MAX_PLACES:
            return [pattern for literal, pattern in self._literals if literal in lower]
        patterns: list[PreparedPattern] = []
        start = lower.find(self._prefix)
        while start >= 0:
            for size, by_literal in self._by_literal.items():
                for pattern in by_literal.get(lower[start : start + size], ()):
                    if pattern not in patterns:
                        patterns.append(pattern)
            start = lower.find(self._prefix, start + 1)
        return patterns


class NeedlePatterns:
    """The patterns that have the same needle.

    Args:
        patterns: The patterns.
    """

    def __init__(self, patterns: Sequence[PreparedPattern]) -> None:
        self._patterns = patterns
        self._table = _LiteralTable.of(patterns) if len(patterns) >= _MIN_PATTERNS else None

    @cached_property
    def ignore_digits(self) -> bool:
        """Whether lines that differ in their digits only match the same patterns at the same places."""
        return all(ignores_digits(pattern.pattern.regex) for pattern in self._patterns)

    def possible(self, lower: str) -> Sequence[PreparedPattern]:
        """The patterns that a line in lower case may match; of many, those whose first required text it contains."""
        return self._patterns if self._table is None else self._table.possible(lower)

    def with_core(self, dense_text: CasedText) -> Sequence[PreparedPattern]:
        """The patterns whose needle is in lines without whitespace, with its punctuation."""
        return [pattern for pattern in self._patterns if pattern.has_core(dense_text)]


def _common_start(texts: Sequence[str]) -> str:
    """The text with which all texts start; two of them differ behind it."""
    first, last = min(texts), max(texts)
    size = next((index for index, letter in enumerate(first) if letter != last[index : index + 1]), len(first))
    return first[:size]
