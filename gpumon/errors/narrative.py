"""An explanation as headings, paragraphs and code, for a terminal, a screen or a document to lay out."""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from gpumon.core.text_table import table
from gpumon.core.units import counted
from gpumon.errors.entry import ContextState, Fix, KnownError
from gpumon.errors.explanation import Explanation
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.load import shared_fixes, shared_texts
from gpumon.errors.match import Match
from gpumon.errors.memory import MemoryCause, cause_sentence, size_rows
from gpumon.errors.prefixes import Timestamp
from gpumon.errors.raised import TracebackFrame
from gpumon.errors.rank import PLACES, case_of, fixes_of
from gpumon.errors.reading import LogFailure, NumberedLine

FIXES: Final = "How to fix it, best first"
NEXT_STEPS: Final = "What to do next"
"""Headings of the sections whose items are things to do."""

_ROWS: Final = [row.split(" | ", 2) for row in table("gpumon.errors", "kinds")]
KIND_SENTENCES: Final = {kind: sentence for kind, sentence, *_ in _ROWS}
_KINDS: Final = [(kind, lazy_pattern(pattern, re.IGNORECASE)) for kind, _, *patterns in _ROWS for pattern in patterns]


class BlockKind(Enum):
    """How a block of text is laid out: code is never wrapped, a row is a name and a value, separated by a tab."""

    PARAGRAPH = "paragraph"
    ITEM = "item"
    CODE = "code"
    QUOTE = "quote"
    ROW = "row"


class TextBlock(NamedTuple):
    """A block of text."""

    kind: BlockKind
    text: str


class Section(NamedTuple):
    """A heading and the blocks below it."""

    heading: str
    blocks: tuple[TextBlock, ...]


def paragraph(text: str) -> TextBlock:
    """A paragraph."""
    return TextBlock(BlockKind.PARAGRAPH, text)


def fix_blocks(fixes: Iterable[Fix]) -> Iterator[TextBlock]:
    """A list of fixes, each with its code."""
    for fix in fixes:
        yield TextBlock(BlockKind.ITEM, fix.text)
        if fix.code:
            yield TextBlock(BlockKind.CODE, fix.code)


def sections(explanation: Explanation) -> list[Section]:
    """The cause in full, then the other errors in the log; or what is known about the last unknown error."""
    cause = explanation.cause
    others = [_other_match(match) for match in explanation.matches if match is not cause]
    if cause is None:
        result = list(_unknown_sections(explanation))
    else:
        result = [_summary(cause), *_memory(cause)]
        if cause.evidence:
            result.append(_table("This host now", cause.evidence.items()))
        result += _remedies(cause.error, cause.fixes, cause.context)
        # The sizes explain why memory ran out, and what is no part of the message only serves the fixes.
        values = [(name.replace("_", " "), value) for name, value in cause.values.items() if name not in PLACES]
        if values and cause.memory is None:
            result.append(_table("Values in the log", values))
        result += _sources(cause.error)
    if others:
        result.append(Section("Also in the log", tuple(map(paragraph, others))))
    return result


def error_sections(error: KnownError) -> list[Section]:
    """An entry of the catalogue."""
    summary = Section(_heading(error), (paragraph(error.summary), *_causes(error.causes)))
    return [summary, *_remedies(error, fixes_of(error, case_of(error)), error.context), *_sources(error)]


def _summary(match: Match) -> Section:
    blocks = [paragraph(match.error.summary), TextBlock(BlockKind.QUOTE, match.text), paragraph(_position(match))]
    if match.memory_cause in {None, MemoryCause.UNKNOWN}:
        blocks += _causes(match.causes)
    return Section(_heading(match.error), tuple(blocks))


def _heading(error: KnownError) -> str:
    return f"{error.title} [{error.id}]"


def _position(match: Match) -> str:
    """Where and how often the log has the error; or the process that wrote the report."""
    if match.oom_report is not None:
        return match.oom_report.place
    ranks = f" ({_ranks_text(match.ranks)})" if len(match.ranks) > 1 else ""
    count = "" if match.count == 1 else f" {match.count} lines contain this error{ranks}."
    return _position_text(match.line, match.rank, match.timestamp) + count


def _ranks_text(ranks: Sequence[int]) -> str:
    """Ranks with consecutive ones as a range: ``ranks 0-7, 12``."""
    firsts = [rank for rank in ranks if rank - 1 not in ranks]
    lasts = [rank for rank in ranks if rank + 1 not in ranks]
    return "ranks " + ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(firsts, lasts, strict=True))


def _causes(causes: Sequence[str]) -> Iterator[TextBlock]:
    if causes:
        yield paragraph("Possible causes, most frequent first:")
        yield from (TextBlock(BlockKind.ITEM, cause) for cause in causes)


def _memory(match: Match) -> Iterator[Section]:
    report, cause = match.oom_report, match.memory_cause
    if match.memory is None or cause is None:
        return
    gpu = ", ".join(str(match.values[name]) for name in ("gpu", "gpu_name") if name in match.values)
    rows = [*([("GPU", gpu)] if gpu else ()), *size_rows(match.values), *(report.rows if report else ())]
    sentences = report.sentences if report else [cause_sentence(cause, match.memory)]
    yield _table("Why memory ran out", rows, *map(paragraph, sentences))
    if report and report.stack:
        calls = tuple(TextBlock(BlockKind.CODE, call) for call in report.stack)
        yield Section("Stack of the allocation, innermost call first", calls)


def _table(heading: str, rows: Iterable[tuple[str, object]], *above: TextBlock) -> Section:
    """A section with names and values, below some text."""
    return Section(heading, (*above, *(TextBlock(BlockKind.ROW, f"{name}\t{value}") for name, value in rows)))


def _remedies(error: KnownError, fixes: Sequence[Fix], context: ContextState) -> Iterator[Section]:
    yield Section(FIXES, tuple(fix_blocks(fixes)))
    yield Section("Continue or restart", (paragraph(shared_texts("context")[context.value]),))
    if error.empty_cache not in shared_texts("cache").values():  # those of errors that are not about memory
        yield Section("Effect of torch.cuda.empty_cache()", (paragraph(error.empty_cache),))
    if error.see_more:
        yield Section("More information", tuple(fix_blocks(error.see_more)))


def _sources(error: KnownError) -> Iterator[Section]:
    if error.said_by:
        yield Section("Found in", (paragraph(f"{error.said_by}."),))
    if error.sources:
        yield Section("Sources", tuple(TextBlock(BlockKind.CODE, source) for source in error.sources))


def _other_match(match: Match) -> str:
    role = ", a consequence of another error" if match.error.is_echo else ", a warning" if match.is_warning else ""
    return f"{_heading(match.error)}{role}. {_position(match)}"


def _unknown_sections(explanation: Explanation) -> Iterator[Section]:
    """The last unknown error of a log; for a log without errors, its last lines."""
    error, reading = explanation.unknown, explanation.reading
    if error is None:
        why = "The log also contains no other error: no traceback, no crash, and no line of the level ERROR."
        why = why if reading.last_lines else "The log is empty."
        yield Section(f"No known error in {counted(reading.lines, 'line')}", (paragraph(why),))
        heading, lines, steps = "Its last lines", tuple(reading.last_lines), shared_fixes("unknown-no-error")
        request = "If the log contains an error that gpumon does not recognize, open an issue, and attach:"
    else:
        place = [paragraph(_position_text(error.line, error.rank, error.timestamp))]
        if error.frame is not None:
            place.append(paragraph(_frame_text(error.frame)))
            place += [TextBlock(BlockKind.CODE, error.frame.code)] if error.frame.code else []
        kind, quote = paragraph(KIND_SENTENCES[kind_of(error)]), TextBlock(BlockKind.QUOTE, error.first_text)
        yield Section(f"{error.name}: not a known error", (quote, *place, kind))
        heading, lines, steps = "Lines around it", error.around, shared_fixes(f"unknown-{kind_of(error)}")
        request = "To have this error added to gpumon, open an issue. A report to any project needs:"
    if lines:
        yield Section(heading, tuple(_quotes(lines)))
    yield Section(NEXT_STEPS, tuple(fix_blocks(steps)))
    yield Section("What to attach to a report", (paragraph(request), *fix_blocks(shared_fixes("unknown-attachments"))))


def _position_text(line: int, rank: int | None, timestamp: Timestamp | None) -> str:
    """Where a log has an error, in a sentence."""
    rank_text = "" if rank is None else f", rank {rank}"
    return f"Line {line}{rank_text}{f', {timestamp.text}' if timestamp is not None and timestamp.text else ''}."


def _frame_text(frame: TracebackFrame) -> str:
    function = f", in {frame.function}" if frame.function else ""
    code = "Your code" if frame.is_own else "No frame is in your code; the innermost frame"
    return f"{code}: {frame.file}, line {frame.line}{function}."


def _quotes(lines: Sequence[NumberedLine]) -> Iterator[TextBlock]:
    width = len(str(lines[-1].number))
    for line in lines:
        yield TextBlock(BlockKind.QUOTE, f"{line.number:>{width}}  {line.text}")


def kind_of(failure: LogFailure) -> str:
    """What failed, as a public name: what the text of an error names, or else how it reads."""
    other = "program" if " " in failure.name else "python"  # the name of an exception has no spaces
    return next((kind for kind, pattern in _KINDS if pattern.search(failure.first_text) is not None), other)
