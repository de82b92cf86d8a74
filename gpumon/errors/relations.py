"""Whether there is evidence that one failure of a log follows from another one."""

from typing import Final

from gpumon.errors.conditions import holds
from gpumon.errors.entry import ContextState
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.match import Match
from gpumon.errors.prefixes import ClockKind
from gpumon.errors.rank import case_of
from gpumon.errors.reading import LogFailure
from gpumon.errors.signs import has_sign, is_of_script

_DAY_SECONDS: Final = 24 * 3600.0
_PERIOD_SECONDS: Final = {ClockKind.TIME_OF_DAY: _DAY_SECONDS, ClockKind.WITHOUT_YEAR: 366 * _DAY_SECONDS}
"""The period after which a clock restarts: two errors may be on both sides of midnight or of a new year."""
_PROBES: Final = frozenset(
    {"KeyError", "AttributeError", "IndexError", "StopIteration", "LookupError", "Empty", "ImportError", "NameError"}
    | {"ModuleNotFoundError", "HTTPError", "HTTPStatusError", "UnicodeDecodeError", "JSONDecodeError", "TypeError"}
)
"""Exceptions by which a library tries something; what it raises while it handles one says more."""
_MAX_LINES_TO_REASON: Final = 5000
"""Lines between NCCL's warning and the error that it explains."""
_MAX_LINES_BEHIND: Final = 16
"""The same, for a reason that the error names in its last lines."""
_OBJECT: Final = lazy_pattern(r"[\w./:@-]*[/\d:][\w./:@-]*")
_NAME: Final = lazy_pattern(r"[A-Za-z]*_\w+")
_WORD: Final = lazy_pattern(r"[A-Z]?[a-z]{3,}|[A-Z]{4,}")
_MIN_OBJECT: Final = 7
_NOT_A_NUMBER: Final = lazy_pattern(r"(?i)\b(?:nan|inf|non-?finite)\b")


def are_of_one_rank(one: LogFailure, other: LogFailure) -> bool:
    """Whether both may be of one rank."""
    return one.rank is None or other.rank is None or one.rank == other.rank


def is_earlier(failure: LogFailure, other: LogFailure) -> bool:
    """Whether the timestamps prove that one failure is earlier than another one."""
    if failure.timestamp is None or other.timestamp is None or failure.timestamp.clock is not other.timestamp.clock:
        return False
    is_of_one_stream = failure.rank is None and failure.source == other.source
    if (failure.ended is not None or is_of_one_stream) and not failure.timestamp.text:
        return False  # the time of the line above it, of whatever program
    seconds = other.timestamp.seconds - failure.timestamp.seconds
    period = _PERIOD_SECONDS.get(failure.timestamp.clock)
    return seconds > 0 if period is None else 0 < seconds % period < period / 2


def is_led_by(root: LogFailure, lasting: LogFailure) -> bool:
    """Whether an error of a kind that ends programs later is the cause of a failure."""
    if follows(root, lasting) or _is_about_the_same(root, lasting.text):
        return True
    is_near = -_MAX_LINES_BEHIND <= root.line - lasting.line <= _MAX_LINES_TO_REASON
    is_notice = lasting.match is not None and lasting.match.error.is_warning
    if root.ended is not None and root.ended.code == 1 and root.match is None:
        return 0 <= root.line - lasting.line <= _MAX_LINES_BEHIND  # the program said it, and ended itself
    return root.is_echo and not (lasting.is_echo or is_notice) and is_near


def follows(failure: LogFailure, earlier: LogFailure) -> bool:
    """Whether an error is one that follows from another one, as its entry or the state of the GPU says."""
    if earlier.match is None:
        return False
    if earlier.match.error.context is ContextState.RESET and failure.match is not earlier.match:
        return _may_be_hardware(failure)
    if failure.match is None:
        return False
    case = case_of(failure.match.error, failure.match.text, failure.match.values)
    ids = (error_id for error_id, when in failure.match.error.follows if holds(when, case))
    return earlier.match.error.id in ids


def may_lead_to(notice: Match, root: LogFailure) -> bool:
    """Whether a notice may be the reason of a failure: it names the same, and says more than the failure does."""
    package, message, text = root.raised.package, root.raised.message, notice.text
    is_repeated = message != "" and message in text
    is_named = (len(package) >= _MIN_OBJECT and package in text) or shares_name(notice, root)
    is_named |= leaves_nothing(notice, root)
    return not is_repeated and (is_named or _is_about_the_same(root, text))


def leaves_nothing(notice: Match, root: LogFailure) -> bool:
    """Whether a failure is that nothing is left, or a verdict, and the notice is an error that may have led to it."""
    is_left = has_sign("nothing there", root.raised.message) and root.raised.class_name != "FileNotFoundError"
    is_left |= not root.is_raised and has_sign("last verdict", root.text)
    return is_left and notice.line < root.line and not (notice.error.is_warning or notice.error.is_echo)


def shares_name(notice: Match, root: LogFailure) -> bool:
    """Whether both have a name as programs use them, such as that of a module."""
    names = {name for name in _NAME.findall(notice.text) if len(name) >= _MIN_OBJECT}
    return not names.isdisjoint(_NAME.findall(root.text))


def is_about(failure: LogFailure, text: str) -> bool:
    """Whether a text has words of the message of a failure, or of the user's line that failed."""
    said = f"{failure.raised.first_words or failure.text} {failure.frame.code if failure.frame else ''}"
    one, other = ({word.lower() for word in _WORD.findall(some)} for some in (said, text))
    return not all(has_sign("common word", word) for word in one & other)


def says_more(later: LogFailure, earlier: LogFailure) -> bool:
    """Whether an exception that was raised while another one was handled says more than that one."""
    raising = later.raised.raising
    is_of_report = raising is not None and (has_sign("reporting", raising.function) or raising.file == "<unknown>")
    return bool(later.raised.message) and not (later.is_echo or later.is_report or is_of_report) and is_probe(earlier)


def is_probe(failure: LogFailure) -> bool:
    """Whether an exception is of a kind that libraries handle, and none of the user's own lines is next to it."""
    raising = failure.raised.raising
    if raising is None or not raising.is_own:
        return True
    return failure.raised.class_name in _PROBES and not raising.code.startswith("raise ")


def _is_about_the_same(failure: LogFailure, earlier: str) -> bool:
    """Whether a failure without entry names the same address, port, file or GPU as a text, or both a value like nan."""
    one, other = (
        {word.lower() for word in _NOT_A_NUMBER.findall(text)}
        | {word for word in _OBJECT.findall(text) if len(word) >= _MIN_OBJECT}
        for text in (failure.text, earlier)
    )
    return failure.match is None and not one.isdisjoint(other)


def _may_be_hardware(failure: LogFailure) -> bool:
    """Whether a failure can follow from one of the GPU: not if it is about the values or the memory of the program."""
    if failure.match is not None:
        return failure.match.error.context not in {ContextState.ALIVE, ContextState.RESET}
    return failure.raised.class_name not in _PROBES and not is_of_script(failure.text)
