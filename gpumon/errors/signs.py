"""Signs of how a run went on or ended: signals, exit codes, summaries of launchers, error lines, progress, restarts."""

import re
import signal
from collections import defaultdict
from functools import cache, cached_property, lru_cache
from typing import Final, NamedTuple

from gpumon.core.text_table import table

_MAX_LINE: Final = 600
"""Characters of a line that are examined."""
_MAX_LEVEL: Final = 200
"""Characters at the start of a line in which its level is searched."""
_MAX_SAME: Final = 60
"""Characters of a message that another line repeats."""
_CACHED_LINES: Final = 256
"""Lines whose signs are kept: a log often repeats one."""
DONE: Final = "done"
"""The key of a line that only says that something was completed."""
ANSWERED: Final = "answered"
"""The key of an answered request: a server does not print it from a buffer when it ends."""
_SUMMARY: Final = "wandb:"
"""What Weights & Biases prints at the end of every run, also of one that failed."""
_SIGNALS: Final = {
    "Segmentation fault": 11, "Bus error": 7, "Killed": 9, "OOMKilled": 9, "Aborted": 6, "Illegal instruction": 4,
    "Floating point exception": 8, "Terminated": 15, "Interrupt": 2, "Hangup": 1,
}  # fmt: skip
"""Signals of Linux by what a shell or Kubernetes says."""


class Sign:
    """What the lines of one kind have in common, from `signs.txt`.

    Args:
        texts: One of these is in each line, if there are any.
        regexes: One of these matches, if there are any.
    """

    def __init__(self, texts: tuple[str, ...], regexes: list[str]) -> None:
        self.texts = texts
        self._regexes = regexes

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The regular expression, which is compiled at its first use."""
        return re.compile("|".join(self._regexes))

    def search(self, text: str, end: int = _MAX_LINE) -> re.Match[str] | None:
        """The first match of the regular expression in the start of a text."""
        return self.pattern.search(text, 0, end) if not self.texts or self._has_text(text) else None

    def is_in(self, text: str, end: int = _MAX_LINE) -> bool:
        """Whether the start of a text has the sign."""
        return self.search(text, end) is not None if self._regexes else self._has_text(text[:end])

    def _has_text(self, text: str) -> bool:
        return any(map(text.__contains__, self.texts))


@cache
def _signs() -> dict[str, Sign]:
    texts: dict[str, tuple[str, ...]] = {}
    regexes: dict[str, list[str]] = defaultdict(list)
    for row in table("gpumon.errors", "signs"):
        name, words, regex = row.split("|", 2)
        texts.setdefault(name.strip(), tuple(word.replace("_", " ").replace("^", "_") for word in words.split()))
        regexes[name.strip()] += [regex[1:]] if regex else []
    return {name: Sign(words, regexes[name]) for name, words in texts.items()}


def sign(name: str) -> Sign:
    """The sign with a name in `signs.txt`."""
    return _signs()[name]


WARNING: Final = sign("warning")
_CRASH, _EXIT, _PID, _FAILED_RANK = sign("crash"), sign("exit"), sign("pid"), sign("failed rank")
_ERROR_LEVEL, _REPORTED, _SHELL, _GOES_ON = sign("error level"), sign("reported"), sign("shell"), sign("goes on")
_PASSED, _SUCCESS, _ENDING, _INFORMATION = sign("passed tests"), sign("success"), sign("ending"), sign("information")
_RESTART, _START, _NEGATION, _DONE = sign("restart"), sign("start"), sign("negation"), sign("done")
_TOOL, _LAST_WORDS, _METRIC, _WHY = sign("tool"), sign("last words"), sign("metric"), sign("why")
_OUTPUT_BELOW, _PYTHON_WARNING = sign("output below"), sign("python warning")
_REQUEST, _BAR, _UNIT, _RATE, _LOSS = sign("request"), sign("bar"), sign("unit"), sign("rate"), sign("loss")


_FAILED_COUNT: Final = re.compile(r"(\d+) (?:failed|failures?|errors?)\b|(?:failures|errors)=(\d+)")


class Ended(NamedTuple):
    """A line that says that a process ended.

    Attributes:
        code: Its exit code; negative for a signal.
        is_reason: Whether the line is about the program itself rather than a launcher's account of it.
    """

    code: int
    pid: int | None = None
    is_reason: bool = False


class WorkLine(NamedTuple):
    """A line that a program writes while it works.

    Attributes:
        key: What it counts; empty for what has no number, such as an answered request.
    """

    key: str
    number: int | None = None


def ended(line: str, text: str) -> Ended | None:
    """Reads a line that says that a process ended, and did not end well.

    Args:
        line: The line.
        text: The line without prefixes.
    """
    match = _CRASH.pattern.match(text)
    if match is not None:
        return Ended(-_SIGNALS[match[1] or match[2]], _pid(text), is_reason=True)
    match = _EXIT.search(line)
    if match is None:
        return None
    if match["name"]:
        code = -int(getattr(signal, f"SIG{match['name']}", 0))
    else:
        by_signal = match["died"] or match["signal"] or match["by"] or match["caught"]
        code = -int(by_signal) if by_signal else int(match[match.lastgroup or 0])
    return None if code == 0 else Ended(code, _pid(line))


def _pid(line: str) -> int | None:
    match = _PID.search(line)
    return None if match is None else int(match[match.lastindex or 0])


def first_failed_rank(text: str) -> int | None:
    """The rank in a line of torchrun's summary."""
    match = _FAILED_RANK.search(text)
    return None if match is None else int(match[1])


def failed_tests(text: str) -> int:
    """How many tests failed, as the last line of a program that runs tests says."""
    return sum(int(match[1] or match[2]) for match in _FAILED_COUNT.finditer(text))


def is_reported_error(text: str) -> bool:
    """Whether a line is the error of a compiler, a build, an installer, a scheduler or a command line."""
    match = _REPORTED.pattern.match(text)
    if match is None:
        return _TOOL.pattern.match(text) is not None
    return ("sh: " not in match[0] and ": line " not in match[0]) or _SHELL.is_in(text)


def has_error_level(line: str) -> bool:
    """Whether a line has the level of an error, and does not say that the program goes on."""
    is_error = _ERROR_LEVEL.is_in(line) and not line.startswith(_SUMMARY)
    return is_error and not _GOES_ON.is_in(line.lower())


def says_what_instead(line: str) -> bool:
    """Whether a logger says what the program does instead of what failed."""
    return _GOES_ON.is_in(line.lower()) and (WARNING.is_in(line) or has_information_level(line))


def is_of_shell(text: str) -> bool:
    """Whether a command could not be run, or a script not be found; the shell goes on with the next line."""
    return (": line " in text and _REPORTED.pattern.match(text) is not None) or ": can't open file " in text


@lru_cache(maxsize=_CACHED_LINES)
def is_success(line: str) -> bool:
    """Whether a line says that the run, or its last process, ended well."""
    lower = line[:_MAX_LINE].lower()
    if _PASSED.is_in(lower):
        return "fail" not in lower and "error" not in lower
    return _SUCCESS.is_in(lower) and not _NEGATION.is_in(lower)


def has_information_level(line: str) -> bool:
    """Whether a line has the level of an information or below."""
    return _INFORMATION.is_in(line, _MAX_LEVEL)


@lru_cache(maxsize=_CACHED_LINES)
def is_information(line: str) -> bool:
    """Whether a logger wrote a line that reports no failure."""
    return has_information_level(line) and not _ENDING.is_in(line.lower())


@lru_cache(maxsize=_CACHED_LINES)
def restarts(line: str) -> bool:
    """Whether a launcher or a scheduler says that it starts the program again."""
    return _RESTART.is_in(line)


def is_last_word(line: str) -> bool:
    """Whether a line reads like what a program says when it gives up: only the end of a log shows that it did."""
    return _LAST_WORDS.is_in(line) and not WARNING.is_in(line) and not is_information(line) and not _METRIC.is_in(line)


def is_python_warning(line: str) -> bool:
    """Whether a line is a warning of Python."""
    return _PYTHON_WARNING.is_in(line)


def is_above_output(text: str) -> bool:
    """Whether a launcher says that a command failed before it prints what the command had printed."""
    return _OUTPUT_BELOW.is_in(text)


def says_why(line: str, message: str) -> bool:
    """Whether a line next to an error that has no entry may say more about it than the message does."""
    said = message.partition("\n")[0].partition(": ")[2][:_MAX_SAME]
    is_known = line.strip() in message or (said != "" and said in line)
    if is_known or line[:1].isspace() or not _WHY.is_in(line) or ended(line, line) is not None:
        return False
    return not (progress(line) or WARNING.is_in(line) or has_information_level(line) or _METRIC.is_in(line))


def starts(text: str) -> bool:
    """Whether a line is written when a program is started, such as the prompt of a shell with a command."""
    return _START.is_in(text, _MAX_LEVEL)


@lru_cache(maxsize=_CACHED_LINES)
def progress(line: str) -> WorkLine | None:
    """What a program writes while it works, or None."""
    if line.startswith(_SUMMARY):
        return None
    lower = line[:_MAX_LINE].lower()
    if _REQUEST.is_in(lower):
        return WorkLine(ANSWERED)
    step = _counted(lower)
    return None if step is None or _NEGATION.is_in(lower) else step


def _counted(lower: str) -> WorkLine | None:
    """What a line in lower case counts."""
    if bar := _BAR.search(lower):
        return WorkLine("bar", int(bar[1]))
    if unit := _UNIT.search(lower):
        return WorkLine(unit[1], int(unit[2]))
    if _RATE.is_in(lower) or _LOSS.is_in(lower):
        return WorkLine("")
    return WorkLine(DONE) if _DONE.is_in(lower) else None
