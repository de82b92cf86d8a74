"""Decides how the last run of a log ended and what caused it: backwards from the end to the root."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from itertools import chain
from typing import Final, NamedTuple

from gpumon.errors import signs
from gpumon.errors.evidence import values_of_place
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.load import ERRORS
from gpumon.errors.match import Match
from gpumon.errors.printed import Printed, printed_before
from gpumon.errors.programs import ONLY_ECHOES, program_of
from gpumon.errors.raised import MODEL_CODE, Link
from gpumon.errors.rank import signs_of
from gpumon.errors.reading import FailureKind, LogFailure, LogReading, Notice
from gpumon.errors.relations import are_of_one_rank, follows, is_earlier, is_led_by, is_probe, says_more
from gpumon.errors.signs import has_sign

_OTHER_END: Final = frozenset({"EOFError", "BrokenPipeError", "ConnectionResetError"})
"""What libraries raise when the process at the other end of a connection is gone."""
_TEARDOWN_SIGNALS: Final = frozenset({-15, 143, -2, 130, -1, 129})
_ABORTED: Final = -6
_CRASHES: Final = frozenset({-9, 137, -11, 139, -7, 135, -4, 132, -8})
"""How processes die by themselves or are killed, but not those that a launcher ends, or that end themselves."""
_PANIC: Final = "panic"
"""How Go ends a program, such as the runner of Ollama: its library has printed why before."""
_NAMED: Final = lazy_pattern(r"\S*[/\\]\S*|'[^']*'|\d+")
"""What differs in messages of a shell or a tool about the same."""
_TIME_LIMIT: Final = 124

_ECHO: Final = 3
_LATE: Final = 6
"""From this grade on, failures only follow from others."""


class Confidence(str, Enum):
    """How sure an answer is. The values are public names."""

    HIGH = "high"
    """End and root were found, in one chain."""
    MEDIUM = "medium"
    """The root was found by its kind or its time."""
    UNKNOWN = "unknown"
    """The error has no entry."""


class Cause(NamedTuple):
    """Why the last run of a log failed.

    Attributes:
        chain: From the end to the root.
        is_echo: Whether the log only has failures that follow from another one, such as timeouts.
        ignored: Failures before the end that did not cause it, and warnings.
        printed: What the program printed before about the same sizes or settings.
    """

    root: LogFailure
    end: LogFailure
    chain: tuple[LogFailure, ...]
    confidence: Confidence
    reason: str
    ignored: tuple[Notice, ...]
    printed: Printed
    is_echo: bool = False


def cause_of(reading: LogReading) -> Cause | None:
    """Why the last run of a log failed, or None if it did not."""
    failures = _of_tests(reading.open)
    if not failures:
        return None
    alone = _ranks_without_exception(failures)
    raised = {item.rank for item in failures if item.is_raised and not item.is_report}
    is_silent = reading.first_failed_rank is not None and raised.isdisjoint({None, reading.first_failed_rank})
    is_traced = any(item.raised.is_uncaught and item.raised.has_traceback for item in failures)
    graded = [
        (_LATE if _is_late(item, failures) else _grade(item, alone, is_silent=is_silent, is_traced=is_traced), item)
        for item in failures
    ]
    grade = min(grade for grade, _ in graded)
    candidates = [failure for own, failure in graded if own == grade]
    first = _first(candidates, reading.first_failed_rank)
    root, is_by_kind = _root(first, failures, reading)
    links = [failure for failure in reversed(_links(root, failures)) if failure is not root]
    end = [] if failures[-1] is root or failures[-1] in links else [failures[-1]]
    ignored = _ignored(root, reading)
    confidence, reason = _confidence(root, failures, is_by_kind=is_by_kind)
    root = _with_own_frame(root, first, failures)
    identified = root.matches or tuple(_identified(root))
    printed = printed_before(root, reading)
    named = {**values_of_place(root), **reading.batch_values, **printed.values}
    placed = (
        replace(match, is_cause=True, values={**named, **match.values}) for match in in_place(identified, reading)
    )
    root = replace(root, matches=tuple(placed))
    return Cause(root, failures[-1], (*end, *links, root), confidence, reason, ignored, printed, grade >= _ECHO)


def _of_tests(failures: Sequence[LogFailure]) -> Sequence[LogFailure]:
    """The failures; if the log ends with how many tests failed, those with the exception that most of them raised."""
    if not failures or failures[-1].is_raised or signs.failed_tests(failures[-1].text) <= 1:
        return failures
    tests = [item for item in failures if item.raised.is_of_test]
    counts = Counter(item.first_text for item in tests)
    return [*(item for item in tests if counts[item.first_text] == max(counts.values())), failures[-1]]


def _with_own_frame(root: LogFailure, first: LogFailure, failures: Sequence[LogFailure]) -> LogFailure:
    """The root with the user's line that the exceptions around it name, if its own traceback has none.

    A worker process may only have lines of libraries in it, and what a kernel or the system says has no lines.
    """
    if root.raised.frame is not None:
        return root
    links = _links(root if root.is_raised else first, failures)
    place = links.index(root) if root.is_raised else 0
    same = (link for item in failures if item.text == root.text for link in _links(item, failures))
    frames = (link.raised.frame for link in (*links[place:], *reversed(links[:place]), first, *same))
    return replace(root, raised=root.raised._replace(frame=next(filter(None, frames), None)))


def _is_late(ended: LogFailure, failures: Sequence[LogFailure]) -> bool:
    """Whether an exception of the same rank stands above the end of a process, as what a shell says comes last.

    Or whether a scheduler ended the rest of a job of which a process had ended itself.
    """
    is_from_outside = has_sign("ended from outside", ended.text)
    if ended.kind is not FailureKind.ENDED and not is_from_outside:
        return False
    before = [failure for failure in failures if failure.line < ended.line and failure.rank in {None, ended.rank}]
    if ended.kind is FailureKind.ENDED:
        return any(failure.is_raised for failure in before)
    return any(failure.ended is not None and failure.ended.code not in _TEARDOWN_SIGNALS for failure in before)


def _identified(failure: LogFailure) -> Iterator[Match]:
    """The known error that an exception is by the place where it was raised, whatever names its message has.

    Any class, function and argument can be missing. What shows the cause is that the code of an installed package,
    rather than the user's, refers to it; or that the user's own code does.
    """
    if not failure.is_raised:
        return
    package, message = failure.raised.package, failure.first_text
    text = f"{message}\n{'' if failure.frame is None else failure.frame.code}"
    places = {"package", "model-code"} if package == MODEL_CODE else {"package" if package else "own-code"}
    for error in map(ERRORS.__getitem__, ERRORS.index["raised"]):
        for wording in error.wordings:
            said = lazy_pattern(wording.regex, re.MULTILINE).match(text) if wording.raised_in in places else None
            if said is not None:
                named = {"raised_by": package, **said.groupdict()}
                known = {name: value for name, value in named.items() if value}
                match = Match(error, failure.line, message, failure.rank, timestamp=failure.timestamp, values=known)
                yield match if match.rank is None else replace(match, ranks=(match.rank,))
                return


def in_place(matches: Iterable[Match], reading: LogReading) -> list[Match]:
    """Errors with what their fixes may depend on: the program, the platform, the values of other errors, processes."""
    failures = (*reading.open, *reading.lasting)
    alone = (match.error.program for failure in failures for match in failure.matches)  # what only one program raises
    program = next(filter(None, alone), "") or program_of(reading.programs)
    is_alone = not reading.lasting and all(map(_only_tells, reading.open))
    seen_before = (notice.match for notice in reading.notices if notice.match is not None)
    others: dict[str, dict[str, int | str]] = defaultdict(dict)
    for match in chain(seen_before, *(failure.matches for failure in failures)):
        others[match.error.id].update(match.values)
    placed: list[Match] = []
    for match in matches:
        count = len(reading.processes.get((match.error.id, str(match.values.get("bus", ""))), ()))
        borrowed = ((name, others[error_id].get(name)) for name, error_id in match.error.borrowed)
        before = (*borrowed, ("processes", count if count > 1 else None))
        values = {name: value for name, value in before if value is not None} | dict(match.values)
        seen, depends_on = [str(values.get("signs", ""))], signs_of(match.error)
        seen += [ONLY_ECHOES] if is_alone and ONLY_ECHOES in depends_on else []
        named = {"program": program, "platform": reading.platform, "signs": ", ".join(filter(None, seen))}
        placed.append(replace(match, values=values | {name: text for name, text in named.items() if text}))
    return placed


def _only_tells(failure: LogFailure) -> bool:
    """Whether a failure follows from another one, or is the launcher's word for it."""
    return (
        failure.is_echo or failure.kind is FailureKind.LOGGED or (failure.ended is not None and failure.ended.code == 1)
    )


def _ranks_without_exception(failures: Sequence[LogFailure]) -> set[int]:
    """The ranks whose lines have no exception, in a log that has no traceback: a known error may have ended one."""
    if any(failure.raised.has_traceback for failure in failures):
        return set()
    raised = {failure.rank for failure in failures if failure.is_raised}
    return {failure.rank for failure in failures if failure.rank is not None} - raised


def _grade(failure: LogFailure, alone: set[int], *, is_silent: bool, is_traced: bool) -> int:
    """How much a failure can be a cause: 0 for what ends a process by itself, more for what only reports it.

    Args:
        failure: The failure.
        alone: The ranks without an exception.
        is_silent: Whether the rank that failed first has none.
        is_traced: Whether a process ended with a traceback: an exception without one was printed by the way.
    """
    raised, ended = failure.raised, failure.ended
    if failure.is_raised:
        is_told = raised.class_name in _OTHER_END and (raised.frame is None or not raised.message)
        is_told |= failure.is_report
        if failure.is_echo or is_told or not (raised.message or raised.has_traceback):
            return _ECHO
        is_end = raised.is_uncaught and raised.name != _PANIC
        is_survived = raised.is_caught or signs.is_of_script(failure.text)
        is_logged = raised.is_of_script and not raised.is_uncaught  # the script caught it, and goes on
        is_end |= raised.link is Link.INNER
        is_known = _is_fatal(failure) and (raised.has_traceback or not is_traced)
        return 0 if is_end or (is_known and not is_logged) else 1 + is_survived
    if ended is not None:
        if ended.is_reason and ended.code not in _TEARDOWN_SIGNALS:
            return 4 if ended.code == _ABORTED else 1  # a library that aborts says why
        # of a rank that failed first and is silent, the launcher's account is all there is
        is_first = is_silent and ended.code not in _TEARDOWN_SIGNALS and "local_rank" in failure.text
        return 2 if ended.code in _CRASHES or is_first else 5
    if failure.kind is FailureKind.KNOWN:
        is_after = failure.rank not in alone
        return _ECHO if failure.is_echo else is_after + signs.is_of_script(failure.text)
    return 5 if has_sign("build stopped", failure.text) else 2 if failure.kind is FailureKind.REPORTED else 4


def _is_fatal(failure: LogFailure) -> bool:
    return failure.match is not None and not failure.match.error.is_echo


def _first(candidates: Sequence[LogFailure], failed_first: int | None) -> LogFailure:
    """The earliest failure: by time where that is known, else by the launcher's word, else by line."""
    own = [failure for failure in candidates if failure.rank is not None and failure.rank == failed_first]
    ordered = own or candidates
    of_script = [item for item in ordered if signs.is_of_script(item.text)]
    lasting = [item for item in ordered if item not in of_script]
    last = _NAMED.sub("", ordered[-1].text)
    same = (item for item in ordered if has_sign("line ends", item.text) or _NAMED.sub("", item.text) == last)
    first = lasting[0] if lasting else next(same)
    for other in candidates:
        if is_earlier(other, first):
            first = other
    return first


def _root(first: LogFailure, failures: Sequence[LogFailure], reading: LogReading) -> tuple[LogFailure, bool]:
    """What the first failure goes back to, and whether that was decided by the kind of an error."""
    root = _root_of_chain(first, failures)
    following = (item for item in failures if item is not root and follows(root, item))
    named = next(
        (item for item in following if root.rank is None or _rank_of(item, failures) in {None, root.rank}), None
    )
    if named is not None:
        return named, True
    for other in failures:
        if other is first or other.line >= (root.first_line or root.line) or other.is_echo:
            continue
        if _explains(other, root):
            return _root_of_chain(other, failures), True
    for lasting in reading.lasting:
        if lasting.line != root.line and is_led_by(root, lasting):
            return lasting, True
    return root, False


def _root_of_chain(failure: LogFailure, failures: Sequence[LogFailure]) -> LogFailure:
    """The link of a chain of exceptions that says what went wrong."""
    root, *links = _links(failure, failures)
    for link in links:
        kind = link.raised.link
        is_direct = _is_fatal(link) and (root.is_echo or (not _is_fatal(root) and is_probe(root)))
        is_direct |= root.is_report and not link.is_report
        is_same = root.match is not None and link.match is not None and link.match.error is root.match.error
        is_same = is_same and link.text != root.text
        is_direct |= is_same and has_sign("instruction", link.raised.message)
        is_direct |= root.raised.class_name == "CancelledError"
        is_better = is_direct if kind is Link.DIRECT else kind is Link.DURING and says_more(link, root)
        root = link if is_better or kind is Link.INNER else root
    return root


def _links(failure: LogFailure, failures: Sequence[LogFailure]) -> list[LogFailure]:
    """The chain of exceptions that a failure belongs to, the first one first."""
    of_rank = [item for item in failures if item.is_raised and item.rank == failure.rank]
    if failure not in of_rank:
        return [failure]
    start = of_rank.index(failure)
    end = start + 1
    while start > 0 and of_rank[start].is_linked:
        start -= 1
    while end < len(of_rank) and of_rank[end].is_linked:
        end += 1
    return of_rank[start:end]


def _rank_of(failure: LogFailure, failures: Sequence[LogFailure]) -> int | None:
    """The rank of a failure; a line without one that repeats the error above it belongs to the rank of that one."""
    ids = {match.error.id for match in failure.matches}
    above = [item for item in failures if item.line < failure.line and ids & {match.error.id for match in item.matches}]
    return failure.rank if failure.rank is not None or not above else above[-1].rank


def _explains(earlier: LogFailure, root: LogFailure) -> bool:
    """Whether there is evidence that an earlier failure, which ended no process by itself, is the cause of another one.

    It is the same error, or its entry says so.
    """
    if not are_of_one_rank(earlier, root):
        return False
    if earlier.kind is FailureKind.ENDED:  # before it could write what the next step reads
        is_killed = earlier.ended is not None and earlier.ended.code in {*_CRASHES, _TIME_LIMIT}
        is_missing = has_sign("no checkpoint", root.raised.message) or has_sign("nothing there", root.raised.message)
        return is_killed and is_missing
    is_of_packages = has_sign("installer", earlier.text) or has_sign("environment", earlier.text)
    is_of_build = earlier.kind is FailureKind.REPORTED and has_sign("of a build", earlier.text)
    is_module = root.raised.class_name == "ModuleNotFoundError"
    if (is_of_packages and is_module) or (is_of_build and (is_module or has_sign("library file", root.text))):
        return True
    if earlier.is_raised:
        return earlier.raised.message[:120] == root.raised.message[:120] != ""
    return not {match.error.id for match in root.matches}.isdisjoint(match.error.id for match in earlier.matches)


def _ignored(root: LogFailure, reading: LogReading) -> tuple[Notice, ...]:
    """Warnings and survived errors, each kind once."""
    key = None if root.match is None else root.match.error.id
    shown: dict[str, Notice] = {}
    for notice in reading.notices:
        shown.setdefault(notice.key, notice)
    return tuple(notice for notice in shown.values() if notice.key != key)


def _confidence(root: LogFailure, failures: Sequence[LogFailure], *, is_by_kind: bool) -> tuple[Confidence, str]:
    if root.match is None:
        return Confidence.UNKNOWN, "no entry has this error"
    if is_by_kind:
        return Confidence.MEDIUM, f"line {root.line:,} explains what failed later, by its kind"
    of_ranks = " of any rank" if any(failure.rank is not None for failure in failures) else ""
    if root.raised.is_uncaught:
        is_first = root.line == min(failure.line for failure in failures)
        rest = "" if is_first else " that no other one explains"
        return Confidence.HIGH, f"line {root.line:,} is the first error{of_ranks}{rest}"
    if len(failures) == 1:
        return Confidence.HIGH, f"line {root.line:,} is the only error"
    when = (
        "last exception before the exit"
        if root.raised.frame and failures[-1].ended
        else "first error after the last progress"
    )
    return Confidence.MEDIUM, f"line {root.line:,} is the {when}"
