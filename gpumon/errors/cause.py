"""Decides how the last run of a log ended and what caused it: backwards from the end to the root."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from gpumon.diagnosis.prefixes import ClockKind
from gpumon.diagnosis.explain import _in_place
from gpumon.diagnosis.known import ContextState
from gpumon.diagnosis.programs import program_of, program_of_errors
from gpumon.errors.reading import Failure, FailureKind, LogReading, Notice
from gpumon.errors.tracebacks import Link

_DAY_SECONDS: Final = 24 * 3600.0
_PERIOD_SECONDS: Final = {ClockKind.TIME_OF_DAY: _DAY_SECONDS, ClockKind.WITHOUT_YEAR: 366 * _DAY_SECONDS}
"""The period after which a clock restarts: two errors may be on both sides of midnight or of a new year."""
_REPORTS: Final = re.compile(
    r"(?:ChildFailedError|CalledProcessError|Process(?:Exited|Raised)Exception|SystemExit|SubprocessError"
    r"|SignalException|metadata-generation-failed|subprocess-exited-with-error)$"
)
"""Exceptions that report the failure of another process."""
_PROBES: Final = frozenset(
    {"KeyError", "AttributeError", "IndexError", "StopIteration", "LookupError", "Empty", "ImportError", "NameError"}
    | {"ModuleNotFoundError", "HTTPError", "HTTPStatusError", "UnicodeDecodeError", "JSONDecodeError", "TypeError"}
)
"""Exceptions by which a library tries something; what it raises while it handles one says more."""
_TEARDOWN_SIGNALS: Final = frozenset({-15, 143, -2, 130, -1, 129})
_MAX_LINES_TO_REASON: Final = 5000
"""Lines between NCCL's warning and the error that it explains."""
_OBJECT: Final = re.compile(r"[\w./:@-]*[/\d:][\w./:@-]*")
_MIN_OBJECT: Final = 7
_NOT_A_NUMBER: Final = re.compile(r"(?i)\b(?:nan|inf|non-?finite)\b")
_WRAPPERS: Final = re.compile(r"Caught \w[\w.]* in |Process \d+ terminated with")


_ECHO: Final = 3
"""From this grade on, failures only follow from others."""


class Confidence(str, Enum):
    """How sure an answer is. The values are public names."""

    HIGH = "high"
    """End and root were found, in one chain."""
    MEDIUM = "medium"
    """The root was found by its kind or its time."""
    UNKNOWN = "unknown"
    """The error has no entry."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why the last run of a log failed.

    Attributes:
        root: What caused the end.
        end: The last failure.
        chain: From the end to the root.
        confidence: How sure this is.
        reason: What the confidence rests on.
        echoes: How many other failures follow from the root.
        is_echo: Whether the log only has failures that follow from another one, such as timeouts.
        ignored: Failures before the end that did not cause it, and warnings.
    """

    root: Failure
    end: Failure
    chain: tuple[Failure, ...]
    confidence: Confidence
    reason: str
    echoes: int
    ignored: tuple[Notice, ...]
    is_echo: bool = False


def cause_of(reading: LogReading) -> Cause | None:
    """Why the last run of a log failed, or None if it did not."""
    failures = reading.open
    if not failures:
        return None
    grade = min(map(_grade, failures))
    candidates = [failure for failure in failures if _grade(failure) == grade]
    first = _first(candidates, reading.first_failed_rank)
    root, is_by_kind = _root(first, failures, reading)
    chain = _chain(root, failures)
    ignored = _ignored(root, reading)
    confidence, reason = _confidence(root, failures, is_by_kind=is_by_kind)
    names = (match.error.id for failure in failures for match in failure.matches)
    program = program_of_errors(names) or program_of(reading.programs)
    root = replace(root, matches=tuple(_in_place(match, program, reading.platform) for match in root.matches))
    return Cause(root, failures[-1], chain, confidence, reason, len(failures) - 1, ignored, grade >= _ECHO)


def _grade(failure: Failure) -> int:
    """How much a failure can be a cause: 0 for what ends a process by itself, more for what only reports it."""
    if failure.kind is FailureKind.RAISED:
        raised = failure.raised
        assert raised is not None
        if failure.is_echo or _REPORTS.search(raised.name) or not (raised.message or raised.has_traceback):
            return _ECHO
        return 0 if raised.is_uncaught or _is_fatal(failure) else 1
    if failure.kind is FailureKind.ENDED:
        ended = failure.ended
        assert ended is not None
        is_own = ended.is_reason and ended.code not in _TEARDOWN_SIGNALS
        return 1 if is_own else 5
    if failure.kind is FailureKind.KNOWN:
        return _ECHO if failure.is_echo else 1
    return 2 if failure.kind is FailureKind.REPORTED else 4


def _is_fatal(failure: Failure) -> bool:
    return failure.match is not None and not failure.match.error.is_echo and not failure.match.error.is_warning


def _first(candidates: Sequence[Failure], failed_first: int | None) -> Failure:
    """The earliest failure: by time where that is known, else by the launcher's word, else by line."""
    own = [failure for failure in candidates if failure.rank is not None and failure.rank == failed_first]
    ordered = own or list(candidates)
    first = ordered[0]
    for other in candidates:
        if _is_earlier(other, first):
            first = other
    return first


def _is_earlier(failure: Failure, other: Failure) -> bool:
    """Whether the timestamps prove it."""
    if failure.timestamp is None or other.timestamp is None or failure.timestamp.clock is not other.timestamp.clock:
        return False
    seconds = other.timestamp.seconds - failure.timestamp.seconds
    period = _PERIOD_SECONDS.get(failure.timestamp.clock)
    return seconds > 0 if period is None else 0 < seconds % period < period / 2


def _root(first: Failure, failures: Sequence[Failure], reading: LogReading) -> tuple[Failure, bool]:
    """What the first failure goes back to, and whether that was decided by the kind of an error."""
    root = _root_of_chain(first, failures)
    earlier = [failure for failure in failures if failure.line < root.first_line and failure is not first]
    for other in earlier:
        if other.kind in {FailureKind.KNOWN, FailureKind.RAISED} and not other.is_echo and _explains(other, root):
            return _root_of_chain(other, failures), True
    for lasting in reading.lasting:
        is_near = 0 < root.line - lasting.line <= _MAX_LINES_TO_REASON and not lasting.is_echo
        if lasting.line != root.line and (
            _is_about_the_same(root, lasting)
            or _follows(root, lasting) or (is_near and _is_vague(root) and _same_family(lasting, root))
        ):
            return lasting, True
    return root, False


def _root_of_chain(failure: Failure, failures: Sequence[Failure]) -> Failure:
    """The link of a chain of exceptions that says what went wrong."""
    links = _links(failure, failures)
    root = links[0]
    for link in links[1:]:
        assert link.raised is not None
        assert root.raised is not None
        if link.raised.link is Link.INNER:
            root = link
        elif link.raised.link is Link.DIRECT:
            is_better = _is_fatal(link) and (root.is_echo or (not _is_fatal(root) and _is_probe(root)))
            root = link if is_better else root
        elif link.raised.link is Link.DURING and _says_more(link, root):
            root = link
    return root


def _says_more(later: Failure, earlier: Failure) -> bool:
    """Whether an exception that was raised while another one was handled says more than that one."""
    assert later.raised is not None
    assert earlier.raised is not None
    if later.is_echo:
        return False
    is_probe = _is_probe(earlier)
    if _is_fatal(later):
        return is_probe or not _is_fatal(earlier)
    return is_probe and not _is_fatal(earlier)


def _is_probe(failure: Failure) -> bool:
    """Whether an exception is of a kind that libraries handle, and none of the user's own lines is next to it."""
    raised = failure.raised
    assert raised is not None
    return raised.name.rpartition(".")[2] in _PROBES or raised.raising is None or not raised.raising.is_own


def _links(failure: Failure, failures: Sequence[Failure]) -> list[Failure]:
    """The chain of exceptions that a failure belongs to, the first one first."""
    if failure.raised is None:
        return [failure]
    of_rank = [item for item in failures if item.raised is not None and item.rank == failure.rank]
    index = next(number for number, item in enumerate(of_rank) if item is failure)
    start = index
    while start > 0 and _is_linked(of_rank[start]):
        start -= 1
    end = index + 1
    while end < len(of_rank) and _is_linked(of_rank[end]):
        end += 1
    return of_rank[start:end]


def _is_linked(failure: Failure) -> bool:
    return failure.raised is not None and failure.raised.link is not Link.NONE


def _explains(earlier: Failure, root: Failure) -> bool:
    """Whether there is evidence that an earlier failure, which ended no process by itself, is the cause of another one.

    It is the same error, its kind says so, both name the same object, or the later one only says that another failed.
    """
    if earlier.rank is not None and root.rank is not None and earlier.rank != root.rank:
        return False
    if _follows(root, earlier):
        return True
    if earlier.raised is not None:
        return root.raised is not None and earlier.raised.message[:120] == root.raised.message[:120] != ""
    ids = {match.error.id for match in root.matches}
    if ids & {match.error.id for match in earlier.matches}:
        return True
    return _is_vague(root) and _same_family(earlier, root)


def _is_vague(failure: Failure) -> bool:
    return failure.match is None or failure.match.error.id in _VAGUE


_VAGUE: Final = frozenset({"nccl-system", "nccl-internal", "nccl-remote", "nccl-timeout", "driver-probe", "module-load"})


def _same_family(one: Failure, other: Failure) -> bool:
    if one.match is None or other.match is None:
        return False
    return one.match.error.id.split("-")[0] == other.match.error.id.split("-")[0]


def _follows(failure: Failure, earlier: Failure) -> bool:
    """Whether an error is one that follows from another one, by their kinds."""
    if earlier.match is not None and earlier.match.error.id in HARDWARE_XIDS:
        return _may_be_hardware(failure)
    if failure.match is None or earlier.match is None:
        return False
    ids = FOLLOWS.get(failure.match.error.id, frozenset())
    return earlier.match.error.id in ids


def _is_about_the_same(failure: Failure, earlier: Failure) -> bool:
    """Whether both name the same address, port, file or GPU, or both say that a value is not a number."""
    if failure.match is not None:
        return False
    both = [{word.lower() for word in _NOT_A_NUMBER.findall(item.text)} | set(objects_in(item.text)) for item in (failure, earlier)]
    return bool(both[0] & both[1])


def _may_be_hardware(failure: Failure) -> bool:
    """Whether a failure can follow from one of the GPU: not if it is about the values or the memory of the program."""
    if failure.match is not None:
        return failure.match.error.context is not ContextState.ALIVE
    return failure.raised is None or failure.raised.name.rpartition(".")[2] not in _PROBES


def _chain(root: Failure, failures: Sequence[Failure]) -> tuple[Failure, ...]:
    links = [failure for failure in reversed(_links(root, failures)) if failure is not root] if root in failures else []
    end = [] if failures[-1] is root or failures[-1] in links else [failures[-1]]
    return (*end, *links, root)


def _ignored(root: Failure, reading: LogReading) -> tuple[Notice, ...]:
    """Warnings and survived errors, each kind once."""
    shown: dict[str, Notice] = {}
    for notice in reading.notices:
        key = notice.match.error.id if notice.match else notice.title
        if root.match is None or key != root.match.error.id:
            shown.setdefault(key, notice)
    return tuple(shown.values())


def _confidence(root: Failure, failures: Sequence[Failure], *, is_by_kind: bool) -> tuple[Confidence, str]:
    if root.match is None:
        return Confidence.UNKNOWN, "no entry has this error"
    if is_by_kind:
        return Confidence.MEDIUM, f"line {root.line:,} explains what failed later, by its kind"
    is_first = root.line == min(failure.line for failure in failures)
    if root.kind is FailureKind.RAISED and root.raised is not None and root.raised.is_uncaught:
        what = "the first error" if is_first else "the first one that no other error explains"
        of_ranks = " of any rank" if any(failure.rank is not None for failure in failures) else ""
        return Confidence.HIGH, f"line {root.line:,} is {what}{of_ranks}"
    if len(failures) == 1:
        return Confidence.HIGH, f"line {root.line:,} is the only error"
    return Confidence.MEDIUM, f"line {root.line:,} is the first error after the last progress"


def objects_in(text: str) -> frozenset[str]:
    """Addresses, ports, files and numbers in a text."""
    return frozenset(item for item in _OBJECT.findall(text) if len(item) >= _MIN_OBJECT)


def _all(ids: Iterable[str]) -> frozenset[str]:
    return frozenset(ids)


_INITIALIZATION = _all(
    ("driver-old", "compat-803-804", "fabric-802", "init-unknown", "init-error-2", "init-error-3", "no-driver")
)
HARDWARE_XIDS = _all(f"xid-{number}" for number in (48, 62, 64, 74, 79, 92, 94, 95, 109, 110, 119, 120, 121, 140, 143))
FOLLOWS: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        ("cublas-exec", "cublas-init", "cuda-unknown", "cudnn-engine", "cudnn-init", "cufft", "illegal-address",
         "init-error-3", "launch-failure", "nccl-cuda", "pin-memory"),
        _all(("device-assert",)),
    ),
    **dict.fromkeys(
        ("bad-ordinal", "bf16-unsupported", "cuda-unavailable", "fsdp-no-accelerator", "load-map", "mixed-precision-cpu",
         "nccl-no-gpu", "no-gpus", "trainer-no-gpu", "type-unsupported", "vllm-no-device"),
        _INITIALIZATION | {"nvml-mismatch", "not-compiled"},
    ),
}
