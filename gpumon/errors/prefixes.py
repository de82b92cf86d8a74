"""Prefixes of loggers, launchers and containers: ranks, timestamps, levels, names of pods, the JSON of a record.

They are removed so that a message broken over several lines can be joined again, and so that a pattern anchored to the
start of a line matches.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from enum import Enum, auto
from functools import lru_cache
from itertools import repeat
from typing import Final, NamedTuple

from gpumon.errors.lazy_pattern import lazy_pattern

_TIME: Final = r"\d\d:\d\d:\d\d(?:[.,]\d+|)"
_ZONE: Final = r"(?:Z|[ ]?[+-]\d\d:?\d\d|)"
_MONTH_DAY: Final = r"[A-Z][a-z][a-z][ ]{1,2}\d{1,2}"
_DATE: Final = (
    rf"(?:\d\d(?:\d\d|)[-/.](?:\d\d|[A-Z][a-z][a-z])(?:[-/.]\d\d(?:\d\d|)|)|{_MONTH_DAY}(?:[ ]\d{{4}}|))[T ,]{{1,2}}"
)
_SEPARATOR: Final = r"(?:[ ][-|>](?=[ ])|)"
_STREAM: Final = r"(?:[ ]std(?:out|err)[ ][FP](?=[ ])|)"
"""What a container runtime of Kubernetes writes after the timestamp."""
_RANK: Final = r"(\d{1,5})"
_LEVELS: Final = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"
_LEVEL_AFTER_TIME: Final = rf"[ ]+(?:{_LEVELS})\b(?:[:|-]|[ ]+[|-](?=[ ])|)"
"""After a time, a bare word is a level; alone, it may be a word of a message that was broken before it."""

# Every line of a log is matched with this pattern. Each branch starts with a different letter, digit or bracket,
# because the regular expression engine skips branches whose first character does not match; an empty branch is faster
# than a question mark. Only ranks are groups.
_PREFIX: Final = lazy_pattern(
    rf"""\n[ \t]*(?:{_RANK}:(?=[ ])|[A-Za-z][A-Za-z0-9_.-]{{0,62}}[ ]*\|(?=[ ])|)(?:[ \t]*(?=[\d\[{{(A-Z\#])(?:
      (?=\d)(?:{_DATE}{_TIME}{_ZONE}:?{_STREAM}{_SEPARATOR}(?:{_LEVEL_AFTER_TIME}|)
        |{_TIME}(?::(?=[ ])|(?![\w:)]|[.,]\d)){_SEPARATOR}|\d+\.\ds[ \t]+\d+(?=[ \t]))
     |\#\d+[ ]\d+\.\d+(?=[ ])
     |\[(?:
        (?:default|rank|trainer|worker|gpu)[ :]?{_RANK}\]:?
       |(?:PG[ ][^\]\n]{{0,80}}[ ]|)[Rr]ank[: ]{{0,2}}{_RANK}\]:?
       |\d{{1,3}},{_RANK}\]<std(?:out|err)>:
       |(?:{_DATE}|){_TIME}{_ZONE}\](?:{_LEVEL_AFTER_TIME}|\[[\w.]+\]\[(?:{_LEVELS})\][ ]-(?=[ ])|)
       |[ ]*\d+\.\d{{3,9}}\]|\d{{4}}-\d\d-\d\d[ ]\d\d:\d\d\]
       |[A-Z][a-z][a-z][ ]{_MONTH_DAY}[ ]{_TIME}[ ]\d{{4}}\]
       |[IWEFC]\d{{4}}[ ]{_TIME}[ ][\w./-]+:\d+\]
       |pod/[^\]\n]{{1,120}}\]
       |(?:{_LEVELS})\]
       |[\w./-]{{1,80}}\.(?:py|cc|cpp|rs|go):\d+\](?=[ ]|$)
      )
     |\{{"log":"
     |\((?:\w+[ ](?:[\w=]+[ ]|)pid=\d+(?:,[ ]ip=[\d.]+|)|(?:{_DATE}|){_TIME})\)
     |[A-Z](?:(?<=D)EBUG|(?<=I)NFO|(?<=W)ARN(?:ING|)|(?<=E)RROR|(?<=C)RITICAL|(?<=F)ATAL)(?:[:|-]|(?=[ ]\d\d))
     |{_MONTH_DAY}[ ]{_TIME}(?:[ ][\w.-]+[ ][\w/.-]+(?:\[\d+\]|):|)
     |[IWEFC]\d{{4}}[ ]{_TIME}[ ]+(?:\d+[ ]|)[\w./-]+:\d+\]
    ))*[ \t]*""",
    re.VERBOSE,
)
"""The start of a line. To divide a text by it is faster than to match line by line."""
_WITHOUT_RANKS: Final = lazy_pattern(_PREFIX.pattern.replace(_RANK, r"\d{1,5}"), re.VERBOSE)
"""The same for a text without ranks: groups take time, also where they match nothing."""
_RANK_SIGNS: Final = ("ank", "[default", "[trainer", "[worker", "[gpu", "]<std")
_BARE_RANK: Final = lazy_pattern(r"\n[ \t]*\d{1,5}: ")
_MAX_TIMESTAMP_END: Final = 200
"""Characters at the start of a line in which a timestamp is searched; a later one belongs to the message."""


_BUILD_DATE: Final = lazy_pattern(
    rf"\b[A-Z][a-z][a-z] [ \d]\d \d{{4}}, {_TIME}\)"
    rf"|\bSMP (?:PREEMPT\w* )?[A-Z][a-z][a-z] {_MONTH_DAY} {_TIME} \w+ \d{{4}}"
)
"""When Python or the kernel was built, as in the banner of the interpreter and in the output of uname."""
_CLOCK_DIGITS: Final = lazy_pattern(r":\d\d:\d|\.\d{6}\]")
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
    if not lines:
        return ranks, []
    text = "\n" + "\n".join(lines)
    if not any(map(text.__contains__, _RANK_SIGNS)) and _BARE_RANK.search(text) is None:
        return ranks, _WITHOUT_RANKS.split(text)[1:]
    texts: list[str]
    _, *parts = _PREFIX.split(text)
    bare, *named, texts = (parts[group :: _PREFIX.groups + 1] for group in range(_PREFIX.groups + 1))
    for group in (bare, *reversed(named)):
        if any(group):
            ranks = [rank if text is None else int(text) for rank, text in zip(ranks, group, strict=True)]
    # A launcher writes a number and a colon before every line; before a single line, it is a part of the message.
    for index in [index for index, text in enumerate(bare) if text is not None] if any(bare) else ():
        is_single = (index == 0 or bare[index - 1] is None) and bare[index + 1 : index + 2] in ([], [None])
        if is_single and all(group[index] is None for group in named):
            ranks[index], texts[index] = None, lines[index]
    return ranks, texts


def without_prefix(line: str) -> str:
    """A single line without its prefixes."""
    return _WITHOUT_RANKS.split(f"\n{line}", maxsplit=1)[1]


def may_have_timestamps(lines: Iterable[str]) -> list[re.Match[str] | None]:
    """For each line, digits in its start that stand as those of a timestamp do; all of them have such."""
    return list(map(_CLOCK_DIGITS.search, lines, repeat(0), repeat(_MAX_TIMESTAMP_END)))


@lru_cache(maxsize=_CACHED_TIMESTAMPS)
def timestamp_of(line: str) -> Timestamp | None:
    """The timestamp at the start of a line, or None."""
    if may_have_timestamps([line]) == [None]:
        return None
    head = _BUILD_DATE.sub("", line[:_MAX_TIMESTAMP_END])
    for clock, pattern in _TIMESTAMPS:
        match = pattern.search(head)
        if match is not None:
            try:
                return Timestamp(clock, _seconds(match), (match["time"] if pattern is _GLOG else match[0]).strip("[] "))
            except ValueError:  # numbers that look like a date but are not a valid one
                continue
    return None


_LEAP_YEAR: Final = 1972
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _seconds(match: re.Match[str]) -> float:
    parts = match.groupdict()
    if "uptime" in parts:
        return float(parts["uptime"])
    hours, minutes, seconds = parts["time"].replace(",", ".").split(":")
    year = int(parts.get("year") or (_LEAP_YEAR if "day" in parts else 1970))
    month = _MONTHS.index(parts["name"]) + 1 if "name" in parts else int(parts.get("month", 1))
    minute = datetime(year, month, int(parts.get("day", 1)), int(hours), int(minutes), tzinfo=timezone.utc)
    return minute.timestamp() + float(seconds)


_NAMED_DAY: Final = r"(?P<name>[A-Z][a-z]{2}) {1,2}(?P<day>\d{1,2})"
_MONTH: Final = r"(?P<month>\d\d)"
_DAY: Final = r"(?P<day>\d\d)"
_CLOCK: Final = rf"(?P<time>{_TIME})"
_GLOG: Final = lazy_pattern(rf"\b[IWEFC]{_MONTH}{_DAY} {_CLOCK}")
"""A level, a month, a day and a time."""
_TIMESTAMPS: Final = (
    (ClockKind.FULL, lazy_pattern(rf"(?P<year>\d{{4}})[-/]{_MONTH}[-/]{_DAY}[T ]{_CLOCK}")),
    (ClockKind.FULL, lazy_pattern(rf"\b{_NAMED_DAY} {_CLOCK} (?P<year>\d{{4}})\b")),
    (ClockKind.WITHOUT_YEAR, _GLOG),
    (ClockKind.WITHOUT_YEAR, lazy_pattern(rf"\b{_MONTH}[-/]{_DAY} {_CLOCK}")),
    (ClockKind.WITHOUT_YEAR, lazy_pattern(rf"\b{_NAMED_DAY} {_CLOCK}")),
    (ClockKind.TIME_OF_DAY, lazy_pattern(rf"(?<![\w:.<]){_CLOCK}(?![\w:<])")),
    (ClockKind.UPTIME, lazy_pattern(r"\[ *(?P<uptime>\d+\.\d{6})\]")),
)
