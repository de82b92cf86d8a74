"""Signs of how a run went on or ended: signals, exit codes, summaries of launchers, error lines, progress, restarts."""

import re
import signal
from collections import defaultdict
from functools import cache, lru_cache
from typing import Final, NamedTuple

from gpumon.core.text_table import table
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.prefixes import without_prefix

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
_FAILED_COUNT: Final = lazy_pattern(r"\b\d+(?= (?:failed|failures?|errors?)\b)|(?<=failures=)\d+|(?<=errors=)\d+")
_SIGNALS: Final = {
    "Segmentation fault": 11, "Bus error": 7, "Killed": 9, "OOMKilled": 9, "Aborted": 6, "Illegal instruction": 4,
    "Floating point exception": 8, "Terminated": 15, "Interrupt": 2, "Hangup": 1, "Abort trap": 6,
    "File size limit exceeded": 25,
}  # fmt: skip
"""Signals of Linux by what a shell or Kubernetes says."""


class Sign(NamedTuple):
    """What the lines of one kind have in common, from `signs.txt`.

    Attributes:
        texts: One of these is in each line, if there are any.
        pattern: This matches each line; it is empty if the texts are enough.
    """

    texts: tuple[str, ...]
    pattern: re.Pattern[str]

    def search(self, text: str, end: int = _MAX_LINE) -> re.Match[str] | None:
        """The first match in the start of a text."""
        start = text[:end]
        return self.pattern.search(start) if not self.texts or any(map(start.__contains__, self.texts)) else None


@cache
def _signs() -> dict[str, Sign]:
    texts: dict[str, tuple[str, ...]] = {}
    regexes: dict[str, list[str]] = defaultdict(list)
    for row in table("gpumon.errors", "signs"):
        name, words, regex = row.split("|", 2)
        texts.setdefault(name.strip(), tuple(word.replace("_", " ").replace("^", "_") for word in words.split()))
        regexes[name.strip()] += [regex[1:]] if regex else []
    return {name: Sign(words, lazy_pattern("|".join(regexes[name]))) for name, words in texts.items()}


def sign(name: str) -> Sign:
    """The sign with a name in `signs.txt`."""
    return _signs()[name]


def has_sign(name: str, text: str, end: int = _MAX_LINE) -> bool:
    """Whether the start of a text has a sign."""
    return sign(name).search(text, end) is not None


class Ended(NamedTuple):
    """A line that says that a process ended.

    Attributes:
        code: Its exit code; negative for a signal.
        is_reason: Whether the line is about the program itself rather than a launcher's account of it.
    """

    code: int
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
    match = sign("crash").pattern.match(text)
    if match is not None:
        return Ended(-_SIGNALS[match[match.lastindex or 0]], is_reason=True)
    match = sign("exit").search(line) or sign("exit").search(line[_MAX_LINE:][-_MAX_LINE:])  # behind a long command
    if match is None:
        return None
    if match["timeout"]:
        code = 124
    elif match["name"]:
        code = -int(getattr(signal, f"SIG{match['name']}", 0))
    else:
        by_signal = match["died"] or match["signal"] or match["by"] or match["caught"]
        code = -int(by_signal) if by_signal else int(match[match.lastgroup or 0])
    return None if code == 0 else Ended(code)


def first_failed_rank(text: str) -> int | None:
    """The rank in a line of torchrun's summary."""
    match = sign("failed rank").search(text)
    return None if match is None else int(match[1])


def failed_tests(text: str) -> int:
    """How many tests failed, as the last line of a program that runs tests says."""
    is_summary = has_sign("failed tests", text)
    return sum(map(int, _FAILED_COUNT.findall(text))) if is_summary else 0


def is_reported_error(text: str) -> bool:
    """Whether a line is the error of a compiler, a build, an installer, a scheduler or a command line."""
    match = sign("reported").pattern.match(text)
    if match is None:
        return sign("tool").pattern.match(text) is not None
    return ("sh: " not in match[0] and ": line " not in match[0]) or has_sign("shell", text)


def has_error_level(line: str) -> bool:
    """Whether a line has the level of an error, and does not say that the program goes on."""
    is_error = has_sign("error level", line) and not line.startswith(_SUMMARY)
    return is_error and not has_sign("goes on", line.lower())


def says_what_instead(line: str) -> bool:
    """Whether a logger says what the program does instead of what failed."""
    has_level = has_sign("warning", line) or has_information_level(line) or has_sign("error level", line)
    return has_level and has_sign("goes on", line.lower(), _MAX_LEVEL)


def is_of_shell(text: str) -> bool:
    """Whether a command could not be run, or a script not be found; the shell goes on with the next line."""
    return (": line " in text and sign("reported").pattern.match(text) is not None) or ": can't open file " in text


def is_of_script(text: str) -> bool:
    """Whether a shell, a tool or conda says it, after which a script goes on with its next line."""
    goes_on = has_sign("script goes on", text) or has_sign("environment", text)
    return goes_on or is_of_shell(text) or sign("tool").pattern.match(text) is not None


@lru_cache(maxsize=_CACHED_LINES)
def is_success(line: str) -> bool:
    """Whether a line says that the run, or its last process, ended well."""
    lower = line[:_MAX_LINE].lower()
    if has_sign("passed tests", lower):
        return "fail" not in lower and "error" not in lower
    lower = _without_metrics(lower)
    head = re.split("[:;(]", lower, maxsplit=1)[0]  # counts may follow, such as of trials that failed
    lower = head if has_sign("success", head) else lower
    return has_sign("success", lower) and not has_sign("negation", lower)


def _without_metrics(lower: str) -> str:
    """A line without the metrics that are called errors."""
    return sign("named error").pattern.sub("", lower) if "err" in lower else lower


def has_information_level(line: str) -> bool:
    """Whether a line has the level of an information or below."""
    return has_sign("information", line, _MAX_LEVEL)


@lru_cache(maxsize=_CACHED_LINES)
def is_information(line: str) -> bool:
    """Whether a logger wrote a line that reports no failure."""
    return has_information_level(line) and not has_sign("ending", line.lower())


def is_last_word(line: str) -> bool:
    """Whether a line reads like what a program says when it gives up: only the end of a log shows that it did."""
    return has_sign("last words", line) and not has_sign("warning", line)


def says_why(line: str, message: str) -> bool:
    """Whether a line next to an error that has no entry may say more about it than the message does."""
    said = message.partition("\n")[0].partition(": ")[2][:_MAX_SAME]
    is_known = line.strip() in message or (said != "" and said in line)
    is_why = has_sign("why", without_prefix(line)) and progress(line) is None
    if is_known or line[:1].isspace() or line.rstrip().endswith(":") or not is_why:
        return False
    return has_sign("system reason", line) or not (has_sign("warning", line) or has_information_level(line))


def starts(text: str) -> bool:
    """Whether a line is written when a program is started, such as the prompt of a shell with a command."""
    return has_sign("start", text, _MAX_LEVEL)


@lru_cache(maxsize=_CACHED_LINES)
def progress(line: str) -> WorkLine | None:
    """What a program writes while it works, or None."""
    if line.startswith(_SUMMARY):
        return None
    lower = line[:_MAX_LINE].lower()
    if has_sign("request", lower):
        return WorkLine(ANSWERED)
    step = _counted(lower)
    return None if step is None or has_sign("negation", _without_metrics(lower)) else step


def _counted(lower: str) -> WorkLine | None:
    """What a line in lower case counts."""
    if bar := sign("bar").search(lower):
        return WorkLine("bar", int(bar[1]))
    if unit := sign("unit").search(lower):
        return WorkLine(unit[1], int(unit[2]))
    if has_sign("rate", lower) or has_sign("loss", lower):
        return WorkLine("")
    return WorkLine(DONE) if has_sign("done", lower) else None
