"""The short answer: how the run ended, where, one thing to do, why, and what was ignored."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gpumon.core.notebook import NotebookTable
from gpumon.core.units import bytes_text
from gpumon.errors import signs
from gpumon.errors.advice import Advice, exit_meaning, own_words, short_path, steps_without_entry
from gpumon.errors.cause import Cause, in_place
from gpumon.errors.entry import Fix
from gpumon.errors.evidence import evidence, said_near
from gpumon.errors.facts.packages import package_of
from gpumon.errors.match import Match, OomReport
from gpumon.errors.memory import MemoryCause, MemoryMessage
from gpumon.errors.ranks import comparison
from gpumon.errors.reading import FailureKind, LogFailure, LogReading, Notice, NumberedLine
from gpumon.errors.relations import leaves_nothing, may_lead_to, shares_name
from gpumon.errors.renamed import renamed
from gpumon.errors.signs import has_sign

_MAX_NOTICES: Final = 4
_MAX_NAME: Final = 24
_MAX_START_LINES: Final = 20
"""Lines of a run that only started, so that how the one before ended is said too."""
_MAX_PASTED_LINES: Final = 12
"""Lines of a text that was pasted to have a notice explained, rather than the log of a run."""


@dataclass(frozen=True, slots=True)
class LogAnswer(NotebookTable):
    """The short answer to a log.

    Attributes:
        place: The last line of the user's own code.
        otherwise: What else helps.
        printed: What the program printed before about the same sizes or settings, a line each.
        cache: What ``empty_cache()`` would do; only for errors of memory.
    """

    shown = ("place", "advice", "because", "printed")

    headline: str
    place: str = ""
    do: Advice | None = None
    otherwise: Advice | None = None
    because: str = ""
    printed: str = ""
    cache: str = ""
    ignored: str = ""
    confidence: str = ""
    is_failure: bool = True

    def table_title(self) -> str:
        """How the run ended."""
        return self.headline

    @property
    def advice(self) -> str:
        """What to do, with the code."""
        return "\n".join(filter(None, (self.do.text, self.do.code))) if self.do else ""


def answer_of(reading: LogReading, cause: Cause | None, name: str) -> LogAnswer:
    """The short answer to a log."""
    if cause is None:
        return _healthy_answer(reading, name)
    root = cause.root
    name = short_path(root.source) if root.source else name
    name = name if len(name) <= _MAX_NAME else f"…{name[1 - _MAX_NAME :]}"
    printed = cause.printed.text
    steps = _steps(root, printed, [notice for notice in cause.ignored if notice.line >= reading.runs[-1].first_line])
    steps[:0] = renamed(root) or _quoted(_said_by_links(cause))
    compared = comparison(reading.works, reading.ranks) if cause.is_echo else None
    if compared is not None:
        text = f"Find what {compared.ranks} did instead: read its lines, or its stack while it hangs."
        steps.insert(0, Advice(text, "py-spy dump --pid PID"))
    return LogAnswer(
        _headline(cause, reading, name, "" if compared is None else compared.sentence),
        _place(root),
        *_two(steps),
        _because(cause, reading),
        printed,
        _cache(root),
        _ignored_text(cause.ignored),
        f"{cause.confidence.value}, {cause.reason}.",
    )


def _healthy_answer(reading: LogReading, name: str) -> LogAnswer:
    """The answer to a log that does not end in a failure."""
    count = len({notice.key for notice in reading.notices})
    notices = f"; {count} notice{'s' if count != 1 else ''}" if count else ""
    ignored = _ignored_text(reading.notices)
    pasted = in_place((notice.match for notice in reading.notices if notice.match is not None), reading)
    warnings = sum(signs.has_sign("python warning", line.text) for line in reading.last_lines)
    shown, text, steps = None, f"No error ends this log{notices}.", list[Advice]()
    if reading.hang is not None:
        shown, text = reading.hang, f"No error ends this log. If the run goes no further: {reading.hang.error.title}."
    elif reading.is_cut:
        text = "If the run did not go on, look at what ended it: kernel log, scheduler, or a full disk."
        steps = [Advice(text, "sudo dmesg -T | tail -n 50")]
        text = f"No error ends this log; it stops in the middle of line {reading.lines:,}{notices}."
    elif reading.lines <= _MAX_PASTED_LINES and warnings <= 1 and pasted:
        shown, text, ignored = pasted[0], f"No error, only a notice: {pasted[0].error.title}.", ""
    before = reading.runs[-2] if len(reading.runs) > 1 else None
    if before is not None and before.failure and reading.lines - before.last_line <= _MAX_START_LINES:
        ended = _what(before.failure, len(reading.ranks), None)
        text += f" Run {len(reading.runs) - 1} of {len(reading.runs)} ended at line {before.failure.line:,}: {ended}"
    because = "" if shown is None else shown.error.summary
    do, otherwise = _two(steps if shown is None else _advice(shown.fixes))
    return LogAnswer(f"{name}: {text}", "", do, otherwise, because, ignored=ignored, is_failure=False)


def _advice(fixes: Iterable[Fix]) -> list[Advice]:
    return [Advice(fix.text, fix.code) for fix in fixes]


def _two(steps: Sequence[Advice]) -> tuple[Advice | None, Advice | None]:
    """The two best things to do."""
    return (steps[0] if steps else None), (steps[1] if len(steps) > 1 else None)


def answer_to_report(match: Match, report: OomReport) -> LogAnswer:
    """The short answer to the report of a probe whose process ran out of memory."""
    confidence = "high" if report.cause is not MemoryCause.UNKNOWN else "medium"
    return LogAnswer(
        f"{report.place}: {match.error.title}",
        report.stack[0].strip() if report.stack else "",
        *_two(_advice(report.fixes)),
        " ".join(report.sentences),
        match.error.empty_cache,
        confidence=f"{confidence}, the probe measured it.",
    )


def _headline(cause: Cause, reading: LogReading, name: str, compared: str) -> str:
    """How the run ended, or how its ranks differ."""
    root, end = cause.root, cause.end
    if compared:
        title = root.match.error.title if root.match else root.text
        return f"{name}: ended at line {end.line:,}: {title}: {compared}"
    runs = f"run {len(reading.runs)} of {len(reading.runs)} " if len(reading.runs) > 1 else ""
    line = root.line if root.source else end.line
    what = _what(root, len(reading.ranks), reading.first_failed_rank)
    return f"{name}: {runs}ended at line {line:,}: {_tests(cause, reading)}{what}"


def _tests(cause: Cause, reading: LogReading) -> str:
    """How many of several tests that failed raised the exception of the cause."""
    count = 0 if cause.end.is_raised else signs.failed_tests(cause.end.text)
    same = sum(item.first_text == cause.root.first_text for item in reading.open if item.is_raised)
    which = f"{same} of" if same > 1 else "the first of"
    return f"{which} {count} tests that failed " if count > 1 and cause.root.is_raised else ""


def _what(failure: LogFailure, ranks: int, first_failed: int | None) -> str:
    """What happened, in a clause."""
    rank = first_failed if failure.rank is None and failure.kind is FailureKind.ENDED else failure.rank
    of_ranks = f" of {ranks}" if ranks > 1 else ""
    who = "" if rank is None else f"rank {rank}{of_ranks} "
    if failure.kind is FailureKind.ENDED and failure.match is None:
        assert failure.ended is not None
        meaning = exit_meaning(failure.ended.code)[0]
        return f"{who}{meaning}" if who else f"the process {meaning}"
    if failure.is_raised:
        message = failure.raised.first_words.partition(". GPU ")[0].strip()
        return f"{who}raised {failure.raised.name}" + (f": {message}" if message else "")
    text = signs.sign("bar in front").pattern.sub("", " ".join(failure.text.split()))
    title = f"{failure.match.error.title}: {text}" if failure.match else text
    return f"{who}{title}" if not who else f"{who.strip()}: {title}"


def _place(failure: LogFailure) -> str:
    frame = failure.frame
    if frame is None:
        return ""
    function = f" in {frame.function}" if frame.function and frame.function != "<module>" else ""
    return f"{short_path(frame.file)}:{frame.line}{function}" + (f"     {frame.code}" if frame.code else "")


def _steps(root: LogFailure, printed: str, ignored: Sequence[Notice]) -> list[Advice]:
    """What to do, best first; the notices are those of the last run."""
    match, quoted = root.match, _quoted(own_words(root.raised.message if root.is_raised else root.text))
    if match is None:
        steps, hints = steps_without_entry(root, ignored, quoted, printed), _hints(root, ignored)
        named = [hint for is_named, hint in hints if is_named]
        return [*named, *steps, *(hint for is_named, hint in hints if not is_named)]
    fixes = _advice(match.fixes)
    if match.memory is not None:
        return fixes
    first = match.fixes[0] if match.fixes else None
    is_chosen = first is not None and (bool(first.when) or first not in match.error.fixes)  # for just this message
    is_chosen = is_chosen and not any(has_sign("names option", advice.text) for advice in quoted)
    return fixes[:1] + quoted + fixes[1:] if is_chosen else quoted + fixes


def _quoted(said: str) -> list[Advice]:
    """What the log says to do, with the command for the package to install if it is a known one."""
    asked = signs.sign("asks to install").search(said)
    package = package_of(asked["name"]) if asked else ""
    code = f"python -m pip install -U '{package}{asked['rest']}'" if asked and package else ""
    return [Advice(f"The log says: {said}", code)] if said else []


def _said_by_links(cause: Cause) -> str:
    """What an exception that was raised from one without an entry says to do, such as which package to install."""
    root, others = cause.root, [link for link in cause.chain if link.is_linked and link is not cause.root]
    is_open = root.match is None and root.is_raised and not own_words(root.raised.message)
    return next(filter(None, (own_words(link.raised.message) for link in others)), "") if is_open else ""


def _hints(root: LogFailure, ignored: Sequence[Notice]) -> Sequence[tuple[bool, Advice]]:
    """The last warning that an entry has and that may be the reason of an error that has none; is a name in both?"""
    for notice in reversed(ignored):
        if notice.match is not None and notice.match.fixes and may_lead_to(notice.match, root):
            fix = notice.match.fixes[0]
            text = f"Line {notice.line:,} may be the reason ({notice.title}): {fix.text}"
            is_named = shares_name(notice.match, root) or leaves_nothing(notice.match, root)
            return [(is_named, Advice(text, fix.code))]
    return []


def _because(cause: Cause, reading: LogReading) -> str:
    root, match = cause.root, cause.root.match
    if match is None:
        return said_near(root, reading)
    message = match.memory
    if message is None:
        others = (item for item in cause.chain if item is not root and (item is not cause.end or item.is_linked))
        links = (item for item in others if item.first_text not in root.text)
        said = (
            NumberedLine(item.line, item.first_text) for item in links if has_sign("system reason", item.first_text)
        )
        means = match.causes[0] if len(match.causes) == 1 else match.error.summary
        return f"{means} {evidence(root, reading, next(said, None))}".rstrip()
    parts = [f"wanted {bytes_text(message.asked)}"]
    if message.free is not None:
        parts.append(f"free {bytes_text(message.free)}" + (f" of {bytes_text(message.total)}" if message.total else ""))
    if message.allowed is not None and match.memory_cause is MemoryCause.CAP:
        parts.append(f"limit of this process {bytes_text(message.allowed)}")
    if message.own is not None or message.held:
        parts.append(f"this process holds {bytes_text(message.own or message.held)}")
    parts += _other_processes(message)
    return ", ".join((*parts, f"in {root.raised.evaluates}()") if root.raised.evaluates else parts)


def _other_processes(message: MemoryMessage) -> list[str]:
    """What other processes hold, if that is known, and the largest of those that the message names."""
    if not message.foreign:
        return [] if message.foreign is None else ["no other process"]
    held = bytes_text(message.foreign)
    pids = [pid for pid, _ in sorted(message.others, key=lambda other: -other[1])]
    if len(pids) == 1:
        return [f"PID {pids[0]} holds {held}"]
    return [f"other processes {held}" + (f" (most: PID {pids[0]})" if pids else "")]


def _cache(root: LogFailure) -> str:
    match = root.match
    if match is None or match.memory is None:
        return match.error.empty_cache if match is not None and match.error.section == "Memory" else ""
    cached = match.memory.unallocated
    if cached is None:
        return match.error.empty_cache
    if cached < match.memory.asked:
        return f"empty_cache() would not help: {bytes_text(cached)} are cached, and the allocator already tried."
    return (
        f"empty_cache() frees at most {bytes_text(cached)}, in pieces too small for this request: the allocator tried."
    )


def _ignored_text(notices: Iterable[Notice]) -> str:
    items = list({notice.key: notice for notice in notices}.values())
    if not items:
        return ""
    shown = ", ".join(f"{item.title[:60]} (line {item.line:,})" for item in items[:_MAX_NOTICES])
    more = f", {len(items) - _MAX_NOTICES} more" if len(items) > _MAX_NOTICES else ""
    return f"{len(items)} notice{'s' if len(items) != 1 else ''}: {shown}{more}"
