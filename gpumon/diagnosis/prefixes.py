"""What loggers and launchers put before a line: ranks, timestamps, levels, names of pods.

It is taken off so that a message broken over several lines can be put together again, and so that a pattern that begins
with the line finds its beginning.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from enum import IntEnum
from typing import Final, NamedTuple

_CLOCK: Final = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_DAY: Final = r"\d{4}[-/]\d\d[-/]\d\d"
_ZONE: Final = r"(?:Z|[ ]?[+-]\d\d:?\d\d)?"
_MONTH_DAY: Final = r"[A-Z][a-z][a-z][ ]{1,2}\d{1,2}"
_RANK: Final = r"(\d{1,5})"
_LEVELS: Final = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
_LEVEL_BEHIND: Final = rf"[ ]+(?:{_LEVELS})\b[:|-]?"
"""After a time a bare word is a level; by itself it may be a word of a message that was broken before it."""

# Every line of a log goes through this. Its branches begin each with a letter, a digit or a bracket of their own, since
# the engine passes over those that cannot match by their first character. Ranks are its only groups.
_PREFIX: Final = re.compile(
    rf"""[ \t]*(?:{_RANK}:(?=[ ])|[A-Za-z][\w.-]{{0,62}}[ ]*\|(?=[ ]))?(?:[ \t]*(?:
      \d(?:\d{{3}}[-/]\d\d[-/]\d\d[T ]{_CLOCK}(?:{_LEVEL_BEHIND}|{_ZONE}:?)|\d:\d\d:\d\d(?:[.,]\d+)?(?![\w:)]))
     |\[(?:
        (?:default|rank|trainer|worker|gpu)[ :]?{_RANK}\]:?
       |(?:PG[ ][^\]]{{0,80}}[ ])?[Rr]ank[: ]{{0,2}}{_RANK}\]:?
       |\d{{1,3}},{_RANK}\]<std(?:out|err)>:
       |{_DAY}[T ]{_CLOCK}{_ZONE}\](?:{_LEVEL_BEHIND})?
       |{_CLOCK}\]
       |[ ]*\d+\.\d{{6}}\]
       |[A-Z][a-z][a-z][ ]{_MONTH_DAY}[ ]{_CLOCK}[ ]\d{{4}}\]
       |[IWEFC]\d{{4}}[ ]{_CLOCK}[ ][\w./-]+:\d+\]
       |pod/[^\]]{{1,120}}\]
       |(?:{_LEVELS})\]
      )
     |\(\w+[ ]pid=\d+(?:,[ ]ip=[\d.]+)?\)
     |[A-Z](?:(?<=D)EBUG|(?<=I)NFO|(?<=W)ARN(?:ING)?|(?<=E)RROR|(?<=C)RITICAL|(?<=F)ATAL)(?:[:|-]|(?=[ ]\d\d))
     |{_MONTH_DAY}[ ]{_CLOCK}(?:[ ][\w.-]+[ ][\w/.-]+(?:\[\d+\])?:)?
     |[IWEFC]\d{{4}}[ ]{_CLOCK}[ ]+(?:\d+[ ])?[\w./-]+:\d+\]
    ))*[ \t]*""",
    re.VERBOSE,
)
_BARE_RANK: Final = 1
"""The group of a number and a colon: a launcher puts one before every line, in a single line it is the message's."""
_SEARCHED: Final = 200
"""A time stands near the beginning of a line; one further on belongs to the message."""


class Clock(IntEnum):
    """How much of a moment a timestamp tells; only moments of one kind can be compared."""

    UPTIME = 0
    TIME_OF_DAY = 1
    WITHOUT_YEAR = 2
    FULL = 3


class Moment(NamedTuple):
    """When a line was written, as far as it says so.

    Attributes:
        clock: What its seconds count from.
        seconds: Seconds on that clock.
        text: As it was written.
    """

    clock: Clock
    seconds: float
    text: str


def split_prefixes(lines: Sequence[str]) -> tuple[list[int | None], list[str]]:
    """Takes ranks, timestamps, levels and the like off the beginnings of lines; gives the ranks, and what is left."""
    ranks: list[int | None] = []
    texts = []
    numbered: dict[int, bool] = {}
    for place, line in enumerate(lines):
        found = _PREFIX.match(line)
        assert found is not None  # it takes the empty text, too
        end, group = found.end(), found.lastindex
        texts.append(line[end:] if end else line)
        ranks.append(None if group is None else int(found[group]))
        if found[_BARE_RANK] is not None:
            numbered[place] = group == _BARE_RANK
    for place, is_all in numbered.items():
        if is_all and place - 1 not in numbered and place + 1 not in numbered:
            ranks[place], texts[place] = None, lines[place]
    return ranks, texts


def without_prefix(line: str) -> str:
    """What is left of a line that is looked at by itself."""
    found = _PREFIX.match(line)
    assert found is not None  # it takes the empty text, too
    return line[found.end() :]


def moment_of(line: str) -> Moment | None:
    """The time in the beginning of a line."""
    head = line[:_SEARCHED]
    for clock, pattern, seconds in _MOMENTS:
        found = pattern.search(head)
        if found is not None:
            try:
                return Moment(clock, seconds(found.groups()), found[0].strip("[] "))
            except ValueError:  # figures that look like a date and are none
                continue
    return None


def _seconds(year: int, month: int, day: int, clock: str) -> float:
    hours, minutes, rest = clock.replace(",", ".").split(":")
    begun = datetime(year, month, day, int(hours), int(minutes), tzinfo=timezone.utc)
    return begun.timestamp() + float(rest)


_LEAP_YEAR: Final = 1972
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _full(parts: Sequence[str]) -> float:
    year, month, day, clock = parts
    return _seconds(int(year), int(month), int(day), clock)


def _named_month_with_year(parts: Sequence[str]) -> float:
    month, day, clock, year = parts
    return _seconds(int(year), _MONTHS.index(month) + 1, int(day), clock)


def _named_month(parts: Sequence[str]) -> float:
    month, day, clock = parts
    return _seconds(_LEAP_YEAR, _MONTHS.index(month) + 1, int(day), clock)


def _numbered_month(parts: Sequence[str]) -> float:
    month, day, clock = parts
    return _seconds(_LEAP_YEAR, int(month), int(day), clock)


def _time_of_day(parts: Sequence[str]) -> float:
    return _seconds(1970, 1, 1, parts[0])


def _uptime(parts: Sequence[str]) -> float:
    return float(parts[0])


_MOMENTS: Final[tuple[tuple[Clock, re.Pattern[str], Callable[[Sequence[str]], float]], ...]] = (
    (Clock.FULL, re.compile(rf"(\d{{4}})[-/](\d\d)[-/](\d\d)[T ]({_CLOCK})"), _full),
    (Clock.FULL, re.compile(rf"\b([A-Z][a-z]{{2}}) {{1,2}}(\d{{1,2}}) ({_CLOCK}) (\d{{4}})\b"), _named_month_with_year),
    (Clock.WITHOUT_YEAR, re.compile(rf"\b[IWEFC](\d\d)(\d\d) ({_CLOCK})"), _numbered_month),
    (Clock.WITHOUT_YEAR, re.compile(rf"\b(\d\d)[-/](\d\d) ({_CLOCK})"), _numbered_month),
    (Clock.WITHOUT_YEAR, re.compile(rf"\b([A-Z][a-z]{{2}}) {{1,2}}(\d{{1,2}}) ({_CLOCK})"), _named_month),
    (Clock.TIME_OF_DAY, re.compile(rf"(?<![\w:.<])({_CLOCK})(?![\w:<])"), _time_of_day),
    (Clock.UPTIME, re.compile(r"\[ *(\d+\.\d{6})\]"), _uptime),
)
