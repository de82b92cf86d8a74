"""The short answer: how the run ended, where, one thing to do, why, and what was ignored."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from gpumon.core.text_table import table
from gpumon.core.units import bytes_text
from gpumon.errors.cause import Cause, in_place
from gpumon.errors.entry import Fix
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.match import Match, OomReport
from gpumon.errors.memory_cause import MemoryCause
from gpumon.errors.ranks import comparison
from gpumon.errors.reading import FailureKind, LogFailure, LogReading, Notice

_INSTRUCTS: Final = lazy_pattern(
    r"\b(?:[Pp]lease|[Tt]ry|[Uu]se|[Ss]et|[Ii]nstall|[Rr]un|[Cc]onsider|[Ss]pecify|[Pp]ass|[Aa]dd|[Ii]ncrease|[Dd]ecrease"
    r"|[Rr]educe|[Uu]pgrade|[Dd]owngrade|[Mm]ake sure|[Ee]nsure|[Dd]id you (?:mean|forget)"
    r"|[Yy]ou (?:should|must|need|have to|can|may want)"
    r"|must be (?:at (?:least|most)|one of|set|divisible|positive|between)"
    r"|should be (?:at (?:least|most)|one of|set|divisible)"
    r"|[Rr]emove|[Dd]elete|[Cc]hange|[Cc]hoose|[Ee]nable|[Dd]isable|[Rr]eplace|[Ss]witch to|[Uu]pdate|[Cc]heck)\b"
)
"""Words of a sentence that says what to do."""
_BOILERPLATE: Final = lazy_pattern(
    r"CUDA_LAUNCH_BLOCKING|TORCH_USE_CUDA_DSA|TORCH_LOGS|TORCHDYNAMO_VERBOSE|TORCH_SHOW_CPP|expandable_segments"
    r"|See documentation for Memory|max_split_size_mb|NCCL_DEBUG|nccl_debug|HF_DEBUG|suppress_errors|stacktrace below"
    r"|report (?:this|a bug)|(?:file|open|create) an issue|bug report|might be asynchronously|To enable traceback"
    r"|For more information|For debugging|To find out|set_detect_anomaly|Search for `|Check the (?:log|output)"
    r"|see the (?:full )?log|arbitrary code|own risk|unsafe|not recommended|if (?:needed|necessary)"
)
"""Parts of sentences that say how to debug or to report an error, or what is better not done."""
_OF_VERSIONS: Final = frozenset(
    {"AttributeError", "ImportError", "ModuleNotFoundError", "TypeError", "NameError", "UnboundLocalError"}
)
"""Exceptions that a package raises in its own code if it, or a package that it uses, has another version."""
_SENTENCE: Final = lazy_pattern(r"(?<=[.!?])\s+(?=[A-Z`'\"(])|\n+")
_MAX_QUOTE: Final = 240
_MAX_NOTICES: Final = 4
_MAX_PASTED_LINES: Final = 12
"""Lines of a text that was pasted to have a notice explained, rather than the log of a run."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to do.

    Attributes:
        text: What, in a sentence.
        code: What to copy; may be empty.
    """

    text: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class LogAnswer:
    """The short answer to a log.

    Attributes:
        headline: How the last run ended.
        place: The last line of the user's own code.
        do: What to do first.
        otherwise: What else helps.
        because: The evidence.
        cache: What ``empty_cache()`` would do; only for errors of memory.
        ignored: The warnings that are no cause.
        confidence: How sure the answer is, and why.
        is_failure: Whether the log ends in a failure.
    """

    headline: str
    place: str = ""
    do: Advice | None = None
    otherwise: Advice | None = None
    because: str = ""
    cache: str = ""
    ignored: str = ""
    confidence: str = ""
    is_failure: bool = True


def answer_of(reading: LogReading, cause: Cause | None, name: str) -> LogAnswer:
    """The short answer to a log.

    Args:
        reading: The log.
        cause: Why its last run failed.
        name: Its name.
    """
    if cause is None:
        return _healthy_answer(reading, name)
    root = cause.root
    name = _short(root.source) if root.source else name
    steps = _steps(root, cause.ignored)
    compared = comparison(reading.works, reading.ranks) if cause.is_echo else None
    if compared is not None:
        steps.insert(
            0,
            Advice(
                f"Find what {compared.ranks} did instead: read its lines, or its stack while it hangs.",
                "py-spy dump --pid PID",
            ),
        )
    return LogAnswer(
        _headline(cause, reading, name) if compared is None else _compared_headline(cause, name, compared.sentence),
        _place(root),
        steps[0] if steps else None,
        steps[1] if len(steps) > 1 else None,
        _because(root),
        _cache(root),
        _ignored_text(cause.ignored),
        f"{cause.confidence.value}, {cause.reason}.",
    )


def _healthy_answer(reading: LogReading, name: str) -> LogAnswer:
    """The answer to a log that does not end in a failure."""
    count = len({notice.match.error.id if notice.match else notice.title for notice in reading.notices})
    notices = f"; {count} notice{'s' if count != 1 else ''}" if count else ""
    ignored = _ignored_text(reading.notices)
    if reading.hang is not None:
        text = f"{name}: No error ends this log. If the run goes no further: {reading.hang.error.title}."
        first, second = _two(reading.hang)
        return LogAnswer(text, "", first, second, because=reading.hang.error.summary, ignored=ignored, is_failure=False)
    if reading.is_cut:
        step = Advice(
            "If the run did not go on, look at what ended it: kernel log, scheduler, or a full disk.",
            "sudo dmesg -T | tail -n 50",
        )
        text = f"{name}: No error ends this log; it stops in the middle of line {reading.lines:,}{notices}."
        return LogAnswer(text, do=step, ignored=ignored, is_failure=False)
    pasted = in_place((notice.match for notice in reading.notices if notice.match is not None), reading)
    if reading.lines <= _MAX_PASTED_LINES and pasted:
        first, second = _two(pasted[0])
        text = f"{name}: No error, only a notice: {pasted[0].error.title}."
        return LogAnswer(text, "", first, second, because=pasted[0].error.summary, is_failure=False)
    return LogAnswer(f"{name}: No error ends this log{notices}.", ignored=ignored, is_failure=False)


def _two(match: Match) -> tuple[Advice | None, Advice | None]:
    """The two best fixes of an error."""
    steps = [*(Advice(fix.text, fix.code) for fix in match.fixes[:2]), None, None]
    return steps[0], steps[1]


def answer_to_report(match: Match, report: OomReport) -> LogAnswer:
    """The short answer to the report of a probe whose process ran out of memory.

    Args:
        match: The error.
        report: What the probe measured.
    """
    steps = [Advice(fix.text, fix.code) for fix in report.fixes]
    place = report.stack[0].strip() if report.stack else ""
    return LogAnswer(
        f"{report.place}: {match.error.title}",
        place,
        steps[0] if steps else None,
        steps[1] if len(steps) > 1 else None,
        " ".join(report.sentences),
        match.error.empty_cache,
        confidence=f"{'high' if report.cause is not MemoryCause.UNKNOWN else 'medium'}, the probe measured it.",
    )


def _headline(cause: Cause, reading: LogReading, name: str) -> str:
    root, end = cause.root, cause.end
    runs = f"run {len(reading.runs)} of {len(reading.runs)} " if len(reading.runs) > 1 else ""
    line = root.line if root.source else end.line
    return f"{name}: {runs}ended at line {line:,}: {_what(root, len(reading.ranks), reading.first_failed_rank)}"


def _compared_headline(cause: Cause, name: str, sentence: str) -> str:
    title = cause.root.match.error.title if cause.root.match else cause.root.text
    return f"{name}: ended at line {cause.end.line:,}: {title}: {sentence}"


def _what(failure: LogFailure, ranks: int, first_failed: int | None) -> str:
    """What happened, in a clause."""
    rank = first_failed if failure.rank is None and failure.kind is FailureKind.ENDED else failure.rank
    of_ranks = f" of {ranks}" if ranks > 1 else ""
    who = "" if rank is None else f"rank {rank}{of_ranks} "
    if failure.kind is FailureKind.ENDED and failure.match is None:
        assert failure.ended is not None
        meaning = _exit_meaning(failure.ended.code)[0]
        return f"{who}{meaning}" if who else f"the process {meaning}"
    if failure.raised is not None:
        message = failure.raised.message.split("\n")[0].partition(". GPU ")[0].strip()
        return f"{who}raised {failure.raised.name}" + (f": {message}" if message else "")
    text = " ".join(failure.text.split())
    title = f"{failure.match.error.title}: {text}" if failure.match else text
    return f"{who}{title}" if not who else f"{who.strip()}: {title}"


def _place(failure: LogFailure) -> str:
    frame = failure.frame
    if frame is None:
        return ""
    function = f" in {frame.function}" if frame.function and frame.function != "<module>" else ""
    return f"{_short(frame.file)}:{frame.line}{function}" + (f"     {frame.code}" if frame.code else "")


def _short(path: str) -> str:
    """The end of a path, which says which file is meant."""
    parts = re.split(r"[\\/]", path)
    return "/".join(parts[-2:]) if len(parts) > 2 and not path.startswith("./") else path


def own_words(message: str) -> str:
    """What a message itself says about what to do; empty if it says nothing, or only how to debug."""
    chosen: list[str] = []
    for sentence in _SENTENCE.split(message):
        text = " ".join(sentence.split())
        if text.endswith("?") and "mean" not in text:
            continue
        if (
            _INSTRUCTS.search(text) is not None
            and _BOILERPLATE.search(text) is None
            and not text.startswith("(")
            and len(text) <= _MAX_QUOTE
        ):
            chosen.append(text)
    return chosen[0] if chosen else ""


def _steps(root: LogFailure, ignored: Sequence[Notice]) -> list[Advice]:
    """What to do, best first."""
    match = root.match
    message = root.raised.message if root.raised is not None else root.text
    quote = own_words(message)
    quoted = [Advice(f"The log says: {quote}")] if quote else []
    if match is None:
        return quoted + _unknown_steps(root) + _hints(ignored)
    fixes = [Advice(fix.text, fix.code) for fix in match.fixes]
    if quoted and match.memory is None and not _is_chosen(match):
        return quoted + fixes
    return fixes[:1] + quoted + fixes[1:] if match.memory is None else fixes


def _hints(ignored: Sequence[Notice]) -> list[Advice]:
    """The last warning that an entry has, in case it is the reason of an error that has none."""
    for notice in reversed(ignored):
        if notice.match is not None and notice.match.fixes:
            fix = notice.match.fixes[0]
            return [Advice(f"Line {notice.line:,} may be the reason ({notice.title}): {fix.text}", fix.code)]
    return []


def _is_chosen(match: Match) -> bool:
    """Whether a fix was chosen for just this message."""
    first: Fix | None = match.fixes[0] if match.fixes else None
    return first is not None and (bool(first.when) or first not in match.error.fixes)


def _unknown_steps(root: LogFailure) -> list[Advice]:
    frame = root.frame
    place = f"{_short(frame.file)}:{frame.line}" if frame is not None else "that place"
    if root.kind is FailureKind.ENDED:
        assert root.ended is not None
        text = _exit_meaning(root.ended.code)[1]
        advice, _, code = text.partition(" | ")
        return [Advice(advice, code)]
    if root.raised is None:
        for line in table("gpumon.errors", "reports"):
            part, _, advice = line.partition(" => ")
            if part in root.text:
                text, _, code = advice.partition(" | ")
                return [Advice(text, code)]
        return [
            Advice(f"Read line {root.line:,} and the lines above it: the first one that reports an error is the cause.")
        ]
    raised = root.raised
    steps: list[Advice] = []
    if raised.frame is None and raised.package and raised.name in _OF_VERSIONS:
        text = (
            f"No line of your code is in the traceback: {raised.package} is broken, or does not fit the other packages."
        )
        steps.append(Advice(text, f"pip show {raised.package}"))
    code = frame.code if frame is not None else ""
    message = raised.message.split("\n")[0]
    if code.startswith(("raise ", "assert ")) and frame is not None and frame.is_own:
        steps.append(Advice(f"Your own check at {place} ended the run: {message or code}"))
    raising = "" if raised.raising is None else raised.raising.file
    for name, place_part, part, advice in _advice_by_class():
        is_class = name == "*" or raised.name.rpartition(".")[2].endswith(name)
        if is_class and part in raised.message and place_part in raising:
            text, _, command = advice.partition(" | ")
            text = text.replace("{place}", place).replace("{code}", code).replace("{message}", message)
            steps.append(Advice(text, command))
            break
    return steps


def _exit_meaning(code: int | None) -> tuple[str, str]:
    for line in table("gpumon.errors", "exits"):
        number, _, rest = line.partition(": ")
        if code is not None and number == str(code):
            meaning, _, advice = rest.partition(": ")
            return meaning, advice.replace("{run}", "python train.py")
    meaning = (
        "ended" if code is None else f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
    )
    return meaning, "Read the lines above it: the program ended itself with this code, and may say why."


@cache
def _advice_by_class() -> Sequence[tuple[str, str, str, str]]:
    rows = []
    for line in table("gpumon.errors", "exceptions"):
        head, _, advice = line.partition(": ")
        head, _, part = head.partition(" / ")
        name, _, place = head.partition(" @ ")
        rows.append((name, place, part, advice))
    return rows


def _because(root: LogFailure) -> str:
    match = root.match
    if match is None:
        return ""
    message = match.memory
    if message is None:
        return match.causes[0] if len(match.causes) == 1 else match.error.summary
    parts = [f"wanted {bytes_text(message.asked)}"]
    if message.free is not None:
        parts.append(f"free {bytes_text(message.free)}" + (f" of {bytes_text(message.total)}" if message.total else ""))
    if message.own is not None or message.held:
        parts.append(f"this process holds {bytes_text(message.own or message.held)}")
    foreign = message.foreign
    parts.append(f"other processes {bytes_text(foreign)}" if foreign else "no other process")
    return ", ".join(parts)


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
    items = list({notice.match.error.id if notice.match else notice.title: notice for notice in notices}.values())
    if not items:
        return ""
    shown = ", ".join(f"{item.title[:60]} (line {item.line:,})" for item in items[:_MAX_NOTICES])
    more = f", {len(items) - _MAX_NOTICES} more" if len(items) > _MAX_NOTICES else ""
    return f"{len(items)} notice{'s' if len(items) != 1 else ''}: {shown}{more}"
