"""Signs of how a run went on or ended: signals, exit codes, summaries of launchers, error lines, progress, restarts."""

import re
import signal
from typing import Final, NamedTuple

from gpumon.errors.lazy_pattern import lazy_pattern

_MAX_LINE: Final = 600
"""Characters of a line that are examined."""


class Ended(NamedTuple):
    """A line that says that a process ended.

    Attributes:
        code: Its exit code; negative for a signal; None if the line does not say it.
        pid: Its PID, if the line says it.
        rank: The rank that failed first, as a launcher says.
        is_reason: Whether the line is about the program itself rather than a launcher's account of it.
    """

    code: int | None
    pid: int | None = None
    rank: int | None = None
    is_reason: bool = False


_SIGNALS: Final = {
    "Segmentation fault": signal.SIGSEGV,
    "Bus error": signal.SIGBUS,
    "Killed": signal.SIGKILL,
    "Aborted": signal.SIGABRT,
    "Illegal instruction": signal.SIGILL,
    "Floating point exception": signal.SIGFPE,
    "Terminated": signal.SIGTERM,
    "Interrupt": signal.SIGINT,
    "Hangup": signal.SIGHUP,
    "OOMKilled": signal.SIGKILL,
}
_CRASH: Final = lazy_pattern(
    r"(?:\S+: line \d+: +)?(?:\[\d+\][+-]? +)?(?:\d+ +)?(Segmentation fault|Bus error|Killed|Aborted"
    r"|Illegal instruction|Floating point exception|Terminated|Interrupt(?= {3})|Hangup)\b(?! process| worker|:? ?\w+ )"
    r"|.{0,120}\b(OOMKilled)\b"
)
_EXIT: Final = lazy_pattern(
    r"(?i:\bexit(?:ed|s|ing)?\b[ \t]*(?:with[ \t]+)?(?:return[ \t]+|exit[ \t]+|non-zero[ \t]+)?(?:code|status)?[ \t]*"
    r"[:=]{0,2}[ \t]*\(?(?P<code>-?\d{1,10})\b)"
    r"|(?i:\bexit[ _]?code[ \t]*[:=]?[ \t]*(?P<exitcode>-?\d{1,10})\b)"
    r"|(?i:return(?:ed|s)? (?:non-zero )?(?:exit )?(?:code|status)[ :=]+(?P<status>-?\d{1,4})\b)"
    r"|(?i:\bfailed with (?:return |exit |error )?(?:code|status)[ :=]+(?P<failed>-?\d{1,4})\b)"
    r"|died with <Signals\.SIG\w+: (?P<died>\d{1,2})>"
    r"|\b[Ss]ignal (?P<signal>\d{1,2})\b(?: \(SIG\w+\)|[,.;:]| received)"
    r"|killed by signal(?: |: ?)(?P<by>\d{1,2})|(?i:caught) signal (?P<caught>\d{1,2})"
    r"|terminated with signal SIG(?P<name>[A-Z]{3,5})"
)
_PID: Final = lazy_pattern(r"\bpid:? ?=?(\d{2,10})|\bPID (\d{2,10})|processes? \[?(\d{2,10})", re.IGNORECASE)
_EXIT_SIGNS: Final = ("xit", "ignal", "eturned non-zero", "failed with ", "returned ")
_LOCAL_RANK: Final = lazy_pattern(r"^rank *: (\d+) \(local_rank: \d+\)")
_LEVEL: Final = lazy_pattern(
    r"(?:^|[\s\[|(])(?:ERROR|CRITICAL|FATAL|E\d{4}|FAILED)(?=[\]: |]|$)|\[(?:error|fatal|critical)\]"
    r"|level=(?i:error|fatal|critical)\b|^(?:error|fatal|Error|Fatal error): "
)
_REPORTED: Final = lazy_pattern(
    r"[\w./+-]+:\d+(?::\d+)?: (?:fatal )?error:|[\w./+-]+\(\d+\): error|(?:make|gmake)(?:\[\d+\])?: \*\*\*"
    r"|ninja: (?:build stopped|error)|CMake Error|E: [A-Z]|(?:srun|slurmstepd|sbatch|salloc): (?:fatal|error):"
    r"|[\w./+-]+(?: \w+)?: (?:fatal )?error: |ERROR: [A-Z]"
    r"|error: subprocess-exited|Error: (?:No such|Invalid value|Missing|Got unexpected|Unable)|nvcc fatal"
    r"|bash: |sh: \d+: |/bin/(?:ba)?sh: |[\w./-]+: line \d+: "
)
_FOUND_NOTHING: Final = (
    "not found",
    "No such file",
    "Permission denied",
    "cannot execute",
    "Exec format error",
    "syntax error",
)
_PASSED_TESTS: Final = lazy_pattern(r"=+ .*\b[1-9]\d* passed")
_FAILED_TESTS: Final = lazy_pattern(r"^=+ .*\b[1-9]\d* (?:failed|error)")
_SUCCESS: Final = lazy_pattern(
    r"\bexit(?:ed)?(?: with)?(?: exit)?[ _]?(?:code|status)?[:= ]+0\b(?!\.)|\bstate[=: ]+completed\b"
    r"|\b(?:job|run|training|pipeline|experiment)(?: \S{1,40})? (?:has )?(?:completed|finished|succeeded|done)\b"
    r"|\bsuccessfully (?:completed|finished)\b|\bcompleted successfully\b"
)
"""A run that says that it ended well, in lower case."""
_SUCCESS_SIGNS: Final = ("exit", "complet", "finish", "succe", "done")
_DONE: Final = lazy_pattern(
    r"\b(?:successfully|succeeded|completed|complete|finished|done|saved|passed|resumed|recovered)\b"
)
_DONE_SIGNS: Final = ("succe", "complete", "finished", "done", "saved", "passed", "resumed", "recovered")
_NEGATIONS: Final = (
    *("error", "fail", "exception", "traceback", "abort", "kill", "cannot", "could not", "can't", "unable", "invalid"),
    *(" not ", "warn", "timed out", "time out", "timeout", "refused", "shut down", "shutdown", "shutting"),
    *("server process", "assigned", "terminat", "cancel"),
)
_BAR: Final = lazy_pattern(r"%\|[^|\n]{0,200}\| *(\d+)/\d+")
_REQUEST: Final = lazy_pattern(r"\"(?:get|post|put|head|delete|options|patch) \S+ http/[\d.]+\" [1-4]\d\d")
_RATE: Final = lazy_pattern(r"\d (?:tokens?|samples?|it|steps?|images?)/s")
_UNIT: Final = lazy_pattern(
    r"(?<![a-z])(?:global[_ ]?)?(step|iter|epoch|batch|update|round)(?:ation|es|s)?\b[\"'\]]?"
    r"[ \t]*[:=\[/ #(]{1,3}[ \t]*\[?(\d+)"
)
_UNIT_SIGNS: Final = ("step", "iter", "epoch", "batch", "update", "round")
_LOSS: Final = lazy_pattern(r"loss[\"']?[ \t]*[:=][ \t]*-?\d")
_ENDINGS: Final = ("exit", "abort", "shut", "terminat", "kill", "stopp", "clean", "giving up", "traceback")
_GOES_ON: Final = ("retry", "skip", "ignor", "continu", "fallback", "falling back", "try again", "recover")
_INFORMATION: Final = lazy_pattern(
    r"\b(?:INFO|DEBUG)\b|(?:^|\[)I\d{4}[ :]|level=(?:info|debug)|(?:^|[:\]] )I [\w/.-]+:\d+\]"
)
_WARNING: Final = lazy_pattern(r"\b(?:WARN|WARNING)\b|Warning\b|\[W\d{3,4} |^W\d{4} |(?:^|[:\]] )W [\w/.-]+:\d+\]")
_MAX_LEVEL: Final = 200
"""Characters at the start of a line in which its level is searched."""
_RESTART: Final = lazy_pattern(
    r"(?i:restarting worker group|restart_count[=:] ?[1-9]|\brestarting (?:the )?(?:training|job|run|from)"
    r"|\brelaunching\b|\brequeue(?:d|ing)\b|\battempt [:#]?(?:[2-9]|\d\d)\b"
    r"|\bretry(?:ing)? (?:the )?(?:training|job|run)\b"
    r"|\brestart(?:ed)? (?:attempt|number|#)|remaining_restarts|attempts? left; will restart|resubmitt)"
)
_BANNER: Final = lazy_pattern(
    r"Setting OMP_NUM_THREADS environment variable for each process"
    r"|^\+ (?:exec )?(?:srun |torchrun |accelerate |python)"
    r"|^\$ (?:python|torchrun|accelerate|srun|deepspeed)|^srun: job \d+ has been allocated"
)
_RESTART_SIGNS: Final = ("estart", "elaunch", "equeu", "ttempt", "etry", "esubmit")
_SUMMARY: Final = "wandb:"
"""What Weights & Biases prints at the end of every run, also of one that failed."""


DONE: Final = "done"
"""The key of a line that only says that something was completed."""


ANSWERED: Final = "answered"
"""The key of an answered request: a server does not print it from a buffer when it ends."""


class WorkLine(NamedTuple):
    """A line that a program writes while it works.

    Attributes:
        key: What it counts; empty for what has no number, such as an answered request.
        number: How far it is.
    """

    key: str
    number: int | None


def ended(line: str, text: str) -> Ended | None:
    """Reads a line that says that a process ended, and did not end well.

    Args:
        line: The line.
        text: The line without prefixes.
    """
    match = _CRASH.match(text)
    if match is not None:
        name = match[1] or match[2]
        return Ended(-int(_SIGNALS[name]), _pid(text), is_reason=True)
    if not any(sign in line for sign in _EXIT_SIGNS):
        return None
    match = _EXIT.search(line, 0, _MAX_LINE)
    if match is None:
        return None
    if match["name"]:
        code = -int(getattr(signal, f"SIG{match['name']}", 0))
    else:
        by_signal = match["died"] or match["signal"] or match["by"] or match["caught"]
        number = next((match[name] for name in ("code", "exitcode", "status", "failed") if match[name]), None)
        code = -int(by_signal) if by_signal else int(number or 0)
    return None if code == 0 else Ended(code, _pid(line))


def first_failed_rank(text: str) -> int | None:
    """The rank in a line of torchrun's summary."""
    match = _LOCAL_RANK.match(text)
    return None if match is None else int(match[1])


def _pid(line: str) -> int | None:
    match = _PID.search(line, 0, _MAX_LINE)
    return None if match is None else int(next(filter(None, match.groups())))


def is_reported_error(text: str) -> bool:
    """Whether a line is the error of a compiler, a build, an installer, a scheduler or a command line."""
    match = _REPORTED.match(text)
    if match is None:
        return False
    is_shell = "sh: " in match[0] or ": line " in match[0]
    return not is_shell or _has_any(_FOUND_NOTHING, text)


def has_error_level(line: str) -> bool:
    """Whether a line has the level of an error, and does not say that the program goes on."""
    return _LEVEL.search(line, 0, _MAX_LINE) is not None and not _has_any(_GOES_ON, line[:_MAX_LINE].lower())


def is_of_shell(text: str) -> bool:
    """Whether a shell reports a command that it could not run; it goes on with the next line of its script."""
    return ": line " in text and _REPORTED.match(text) is not None


def is_failed_test_run(text: str) -> bool:
    """Whether a line is the summary of tests that failed."""
    return _FAILED_TESTS.match(text) is not None


def is_success(line: str) -> bool:
    """Whether a line says that the run, or its last process, ended well."""
    lower = line[:_MAX_LINE].lower()
    if "passed" in lower and _PASSED_TESTS.match(lower) is not None:
        return "fail" not in lower and "error" not in lower
    return _has_any(_SUCCESS_SIGNS, lower) and _SUCCESS.search(lower) is not None and not _has_any(_NEGATIONS, lower)


def has_information_level(line: str) -> bool:
    """Whether a line has the level of an information or below."""
    return _INFORMATION.search(line, 0, _MAX_LEVEL) is not None


def has_warning_level(line: str) -> bool:
    """Whether a line is a warning."""
    return _WARNING.search(line) is not None


def is_information(line: str) -> bool:
    """Whether a logger wrote a line that reports no failure."""
    return has_information_level(line) and not _has_any(_ENDINGS, line[:_MAX_LINE].lower())


def restarts(line: str) -> bool:
    """Whether a launcher or a scheduler says that it starts the program again."""
    return _has_any(_RESTART_SIGNS, line) and _RESTART.search(line, 0, _MAX_LINE) is not None


def starts(text: str) -> bool:
    """Whether a line is written when a program is started."""
    return text[:1] in "+$Ss" and _BANNER.search(text, 0, _MAX_LINE) is not None


def progress(line: str) -> WorkLine | None:
    """What a program writes while it works, or None."""
    if line.startswith(_SUMMARY):
        return None
    lower = line[:_MAX_LINE].lower()
    if "http/" in lower and _REQUEST.search(lower) is not None:
        return WorkLine(ANSWERED, None)
    step = _counted(lower)
    if step is None and _has_any(_DONE_SIGNS, lower) and _DONE.search(lower) is not None:
        step = WorkLine(DONE, None)
    return None if step is None or _has_any(_NEGATIONS, lower) else step


def _counted(lower: str) -> WorkLine | None:
    """What a line in lower case counts."""
    if "%|" in lower:
        match = _BAR.search(lower)
        if match is not None:
            return WorkLine("bar", int(match[1]))
    if _has_any(_UNIT_SIGNS, lower):
        match = _UNIT.search(lower)
        if match is not None:
            return WorkLine(match[1], int(match[2]))
    is_rate = "/s" in lower and _RATE.search(lower) is not None
    is_rate = is_rate or " throughput: " in lower or "token usage: " in lower
    return WorkLine("", None) if is_rate or ("loss" in lower and _LOSS.search(lower) is not None) else None


def _has_any(signs: tuple[str, ...], text: str) -> bool:
    return any(map(text.__contains__, signs))
