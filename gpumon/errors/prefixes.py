"""Prefixes of loggers, launchers and containers: ranks, timestamps, levels, names of pods, the JSON of a record.

They are removed so that a message broken over several lines can be joined again, and so that a pattern anchored to the
start of a line matches.
"""

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from enum import Enum, auto
from functools import lru_cache
from typing import Final, NamedTuple

_TIME: Final = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_DATE: Final = r"\d{4}[-/]\d\d[-/]\d\d"
_ZONE: Final = r"(?:Z|[ ]?[+-]\d\d:?\d\d)?"
_MONTH_DAY: Final = r"[A-Z][a-z][a-z][ ]{1,2}\d{1,2}"
_STREAM: Final = r"(?:[ ]std(?:out|err)[ ][FP](?=[ ]))?"
"""What a container runtime of Kubernetes writes after the timestamp."""
_RANK: Final = r"(\d{1,5})"
_LEVELS: Final = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
_LEVEL_AFTER_TIME: Final = rf"[ ]+(?:{_LEVELS})\b[:|-]?"
"""After a time, a bare word is a level; alone, it may be a word of a message that was broken before it."""

# Every line of a log is matched with this pattern. Each branch starts with a different letter, digit or bracket,
# because the regular expression engine skips branches whose first character does not match. Only ranks are groups.
_PREFIX: Final = re.compile(
    rf"""[ \t]*(?:{_RANK}:(?=[ ])|[A-Za-z][\w.-]{{0,62}}[ ]*\|(?=[ ]))?(?:[ \t]*(?:
      \d(?:\d{{3}}[-/]\d\d[-/]\d\d[T ]{_TIME}(?:{_LEVEL_AFTER_TIME}|{_ZONE}:?{_STREAM})
        |\d:\d\d:\d\d(?:[.,]\d+)?(?![\w:)]))
     |\[(?:
        (?:default|rank|trainer|worker|gpu)[ :]?{_RANK}\]:?
       |(?:PG[ ][^\]]{{0,80}}[ ])?[Rr]ank[: ]{{0,2}}{_RANK}\]:?
       |\d{{1,3}},{_RANK}\]<std(?:out|err)>:
       |{_DATE}[T ]{_TIME}{_ZONE}\](?:{_LEVEL_AFTER_TIME})?
       |{_TIME}\]
       |[ ]*\d+\.\d{{6}}\]
       |[A-Z][a-z][a-z][ ]{_MONTH_DAY}[ ]{_TIME}[ ]\d{{4}}\]
       |[IWEFC]\d{{4}}[ ]{_TIME}[ ][\w./-]+:\d+\]
       |pod/[^\]]{{1,120}}\]
       |(?:{_LEVELS})\]
      )
     |\{{"log":"
     |\(\w+[ ]pid=\d+(?:,[ ]ip=[\d.]+)?\)
     |[A-Z](?:(?<=D)EBUG|(?<=I)NFO|(?<=W)ARN(?:ING)?|(?<=E)RROR|(?<=C)RITICAL|(?<=F)ATAL)(?:[:|-]|(?=[ ]\d\d))
     |{_MONTH_DAY}[ ]{_TIME}(?:[ ][\w.-]+[ ][\w/.-]+(?:\[\d+\])?:)?
     |[IWEFC]\d{{4}}[ ]{_TIME}[ ]+(?:\d+[ ])?[\w./-]+:\d+\]
    ))*[ \t]*""",
    re.VERBOSE,
)
_BARE_RANK_GROUP: Final = 1
"""The group of a number and a colon. A launcher prefixes every line with it; on a single line it is message text."""
_MIN_PREFIX: Final = 3
"""Characters of the shortest prefix, a number with a colon and a space."""
_LINES_AT_ONCE: Final = 4096
"""Lines that are matched before the matches are read, which is faster; a match needs as much memory as a line."""
_SHORT_LINE: Final = 40
"""Mean characters per line below which equal lines are searched."""
_MAX_TIMESTAMP_END: Final = 200
"""Characters at the start of a line in which a timestamp is searched; a later one belongs to the message."""


_BUILD_DATE: Final = re.compile(
    rf"\b[A-Z][a-z][a-z] [ \d]\d \d{{4}}, {_TIME}\)"
    rf"|\bSMP (?:PREEMPT\w* )?[A-Z][a-z][a-z] {_MONTH_DAY} {_TIME} \w+ \d{{4}}"
)
"""When Python or the kernel was built, as in the banner of the interpreter and in the output of uname."""
_CACHED_TIMESTAMPS: Final = 1024
"""Lines whose timestamps are kept: errors of several ranks search the same lines."""


class ClockKind(Enum):
    """What a timestamp counts from; only timestamps of the same kind can be compared."""

    UPTIME = auto()
    TIME_OF_DAY = auto()
    WITHOUT_YEAR = auto()
    FULL = auto()


class Timestamp(NamedTuple):
    """The timestamp of a line.

    Attributes:
        clock: What the seconds count from.
        seconds: Seconds on that clock.
        text: The time as written, without the letter and the date of glog; empty if only an earlier line has it.
    """

    clock: ClockKind
    seconds: float
    text: str


def split_prefixes(lines: Sequence[str]) -> tuple[list[int | None], list[str]]:
    """Splits ranks, timestamps, levels and other prefixes from lines.

    Returns:
        The rank of each line, or None, and each line without its prefixes.
    """
    ranks: list[int | None] = [None] * len(lines)
    texts: list[str] = []
    numbered: dict[int, bool] = {}
    prefix, empty = _PREFIX.match, _PREFIX.match("")
    for start in range(0, len(lines), _LINES_AT_ONCE):
        some = lines[start : start + _LINES_AT_ONCE]
        distinct = set(some) if sum(map(len, some)) < _SHORT_LINE * len(some) else ()
        if distinct and len(distinct) * 2 < len(some):  # short lines are often equal
            by_line = {line: prefix(line) if len(line) >= _MIN_PREFIX else empty for line in distinct}
            matches = [by_line[line] for line in some]
        else:
            matches = [prefix(line) if len(line) >= _MIN_PREFIX else empty for line in some]
        texts += [line[match.end() :] for line, match in zip(some, matches, strict=True) if match is not None]
        for index, match in enumerate(matches, start):
            assert match is not None  # the pattern matches the empty text as well
            group = match.lastindex
            if group is not None:
                ranks[index] = int(match[group])
                if match[_BARE_RANK_GROUP] is not None:
                    numbered[index] = group == _BARE_RANK_GROUP
    for index, is_only_rank in numbered.items():
        if is_only_rank and index - 1 not in numbered and index + 1 not in numbered:
            ranks[index], texts[index] = None, lines[index]
    return ranks, texts


def without_prefix(line: str) -> str:
    """A single line without its prefixes."""
    match = _PREFIX.match(line)
    assert match is not None  # the pattern matches the empty text as well
    return line[match.end() :]


@lru_cache(maxsize=_CACHED_TIMESTAMPS)
def timestamp_of(line: str) -> Timestamp | None:
    """The timestamp at the start of a line, or None."""
    head = _BUILD_DATE.sub("", line[:_MAX_TIMESTAMP_END])
    for clock, pattern, seconds in _TIMESTAMPS:
        match = pattern.search(head)
        if match is not None:
            try:
                written = match[match.lastindex or 0] if pattern is _GLOG else match[0]
                return Timestamp(clock, seconds(match.groups()), written.strip("[] "))
            except ValueError:  # numbers that look like a date but are not a valid one
                continue
    return None


def _seconds(year: int, month: int, day: int, time: str) -> float:
    hours, minutes, seconds = time.replace(",", ".").split(":")
    minute = datetime(year, month, day, int(hours), int(minutes), tzinfo=timezone.utc)
    return minute.timestamp() + float(seconds)


_LEAP_YEAR: Final = 1972
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _full(parts: Sequence[str]) -> float:
    year, month, day, time = parts
    return _seconds(int(year), int(month), int(day), time)


def _named_month_with_year(parts: Sequence[str]) -> float:
    month, day, time, year = parts
    return _seconds(int(year), _MONTHS.index(month) + 1, int(day), time)


def _named_month(parts: Sequence[str]) -> float:
    month, day, time = parts
    return _seconds(_LEAP_YEAR, _MONTHS.index(month) + 1, int(day), time)


def _numbered_month(parts: Sequence[str]) -> float:
    month, day, time = parts
    return _seconds(_LEAP_YEAR, int(month), int(day), time)


def _time_of_day(parts: Sequence[str]) -> float:
    return _seconds(1970, 1, 1, parts[0])


def _uptime(parts: Sequence[str]) -> float:
    return float(parts[0])


_GLOG: Final = re.compile(rf"\b[IWEFC](\d\d)(\d\d) ({_TIME})")
"""A level, a month, a day and a time, which is its last group."""
_TIMESTAMPS: Final[tuple[tuple[ClockKind, re.Pattern[str], Callable[[Sequence[str]], float]], ...]] = (
    (ClockKind.FULL, re.compile(rf"(\d{{4}})[-/](\d\d)[-/](\d\d)[T ]({_TIME})"), _full),
    (
        ClockKind.FULL,
        re.compile(rf"\b([A-Z][a-z]{{2}}) {{1,2}}(\d{{1,2}}) ({_TIME}) (\d{{4}})\b"),
        _named_month_with_year,
    ),
    (ClockKind.WITHOUT_YEAR, _GLOG, _numbered_month),
    (ClockKind.WITHOUT_YEAR, re.compile(rf"\b(\d\d)[-/](\d\d) ({_TIME})"), _numbered_month),
    (ClockKind.WITHOUT_YEAR, re.compile(rf"\b([A-Z][a-z]{{2}}) {{1,2}}(\d{{1,2}}) ({_TIME})"), _named_month),
    (ClockKind.TIME_OF_DAY, re.compile(rf"(?<![\w:.<])({_TIME})(?![\w:<])"), _time_of_day),
    (ClockKind.UPTIME, re.compile(r"\[ *(\d+\.\d{6})\]"), _uptime),
)
