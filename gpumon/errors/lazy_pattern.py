"""A regular expression that is compiled at its first use: to compile all of them takes longer than to read a log."""

import re
from typing import cast


class _LazyPattern:
    """What stands for a pattern until one of its attributes is used, and then has those that were used."""

    def __init__(self, regex: str, flags: int) -> None:
        self.pattern = regex
        self._flags = flags

    def __getattr__(self, name: str) -> object:
        value: object = getattr(re.compile(self.pattern, self._flags), name)
        setattr(self, name, value)
        return value


def lazy_pattern(regex: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern that is compiled at its first use; only its own methods take it, not the functions of `re`."""
    return cast("re.Pattern[str]", _LazyPattern(regex, flags))
