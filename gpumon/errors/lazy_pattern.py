"""A regular expression that is compiled at its first use: to compile all of them takes longer than to read a log."""

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

_Matcher = Callable[..., re.Match[str] | None]


class LazyPattern:
    """A regular expression with the methods of `re.Pattern`.

    Args:
        regex: The regular expression.
        flags: Those of `re.compile`.
    """

    def __init__(self, regex: str, flags: int = 0) -> None:
        self.pattern, self._flags = regex, flags

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, self._flags)

    @cached_property
    def search(self) -> _Matcher:
        """The first match in a text."""
        return self._compiled.search

    @cached_property
    def match(self) -> _Matcher:
        """The match at the start of a text."""
        return self._compiled.match

    @cached_property
    def fullmatch(self) -> _Matcher:
        """The match of a complete text."""
        return self._compiled.fullmatch

    @cached_property
    def finditer(self) -> Callable[..., Iterator[re.Match[str]]]:
        """The matches in a text."""
        return self._compiled.finditer

    @cached_property
    def findall(self) -> Callable[..., list[Any]]:
        """The texts of the matches, or of the one group."""
        return self._compiled.findall

    @cached_property
    def sub(self) -> Callable[..., str]:
        """A text with its matches replaced."""
        return self._compiled.sub

    @cached_property
    def split(self) -> Callable[..., list[str]]:
        """The parts of a text between the matches."""
        return self._compiled.split
