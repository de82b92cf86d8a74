"""The explanation of a log whose error is unknown: the exception, its place, the lines around it, the next steps."""

from collections.abc import Iterable, Iterator
from typing import Final

from gpumon.core.units import counted
from gpumon.errors.entry import Fix
from gpumon.errors.explanation import Explanation
from gpumon.errors.prefixes import Timestamp
from gpumon.errors.reading import LogFailure, NumberedLine
from gpumon.errors.text_blocks import BlockKind, Section, TextBlock, fix_blocks, paragraph
from gpumon.errors.tracebacks import TracebackFrame
from gpumon.errors.unknown import ATTACHMENTS, KIND_SENTENCES, kind_of, next_steps

_WITHOUT_ERROR: Final = (
    Fix("If the program failed, also keep what it writes to its error output.", "python train.py 2>&1 | tee train.log"),
    Fix("If the program hangs, print the stacks of its threads.", "py-spy dump --pid PID"),
)


def unknown_sections(explanation: Explanation) -> Iterator[Section]:
    """The last unknown error of a log; for a log without errors, its last lines."""
    error = explanation.unknown
    if error is None:
        yield from _no_error(explanation)
        return
    position = paragraph(position_text(error.line, error.rank, error.timestamp))
    quote = TextBlock(BlockKind.QUOTE, error.first_text)
    yield Section(
        f"{error.name}: not a known error",
        (quote, position, *_place(error.frame), paragraph(KIND_SENTENCES[kind_of(error)])),
    )
    yield Section("Lines around it", tuple(_quotes(error.around)))
    yield Section("What to do next", tuple(fix_blocks(next_steps(error))))
    yield _report("To have this error added to gpumon, open an issue. A report to any project needs:")


def other_error(error: LogFailure) -> str:
    """An unknown error after a known one, in a sentence."""
    frame = "" if error.frame is None else f" {_frame_text(error.frame)}"
    return f"{error.first_text} (not a known error). {position_text(error.line, error.rank, error.timestamp)}{frame}"


def position_text(line: int, rank: int | None, timestamp: Timestamp | None) -> str:
    """Where a log has an error, in a sentence."""
    rank_text = "" if rank is None else f", rank {rank}"
    return f"Line {line}{rank_text}{f', {timestamp.text}' if timestamp is not None and timestamp.text else ''}."


def _no_error(explanation: Explanation) -> Iterator[Section]:
    why = "The log also contains no other error: no traceback, no crash, and no line of the level ERROR."
    if not explanation.last_lines:
        why = "The log is empty."
    yield Section(f"No known error in {counted(explanation.lines, 'line')}", (paragraph(why),))
    if explanation.last_lines:
        yield Section("Its last lines", tuple(_quotes(explanation.last_lines)))
    yield Section("What to do next", tuple(fix_blocks(_WITHOUT_ERROR)))
    yield _report("If the log contains an error that gpumon does not recognize, open an issue, and attach:")


def _place(frame: TracebackFrame | None) -> Iterator[TextBlock]:
    if frame is not None:
        yield paragraph(_frame_text(frame))
        if frame.code:
            yield TextBlock(BlockKind.CODE, frame.code)


def _frame_text(frame: TracebackFrame) -> str:
    function = f", in {frame.function}" if frame.function else ""
    code = "Your code" if frame.is_own else "No frame is in your code; the innermost frame"
    return f"{code}: {frame.file}, line {frame.line}{function}."


def _quotes(lines: Iterable[NumberedLine]) -> Iterator[TextBlock]:
    lines = list(lines)
    width = len(str(lines[-1].number))
    for line in lines:
        yield TextBlock(BlockKind.QUOTE, f"{line.number:>{width}}  {line.text}")


def _report(request: str) -> Section:
    return Section("What to attach to a report", (paragraph(request), *fix_blocks(ATTACHMENTS)))
