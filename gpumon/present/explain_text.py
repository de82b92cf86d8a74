"""Explanations as lines of text: the short answer, at most fourteen lines, and the layout of the long form.

The first thing to do stands on the third line of the answer at the latest. The layout is that of the screen, too.

The module is separate from `present.explain`, which imports Rich, so that `gpumon explain` starts quickly.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple

from gpumon.errors.advice import Advice
from gpumon.errors.answer import LogAnswer
from gpumon.errors.narrative import BlockKind, Section, TextBlock
from gpumon.present.paint.line import wrapped

_LABEL_WIDTH: Final = 9
_MAX_TEXT_LINES: Final = 2
_MAX_CODE_LINES: Final = 2
_MAX_LINES: Final = 12
_MORE: Final = "…"
"""Stands for the rest of the code, which the long form shows."""
_CLAUSE_END: Final = re.compile(r"[.;:](?= )")
_PREPARES: Final = re.compile(r"(?:import |from \w[\w.]* import |#|$)")
_NAME_WIDTH: Final = 25
_MARGINS: Final = {
    BlockKind.PARAGRAPH: ("", ""),
    BlockKind.ITEM: ("- ", "  "),
    BlockKind.CODE: ("    ", "    "),
    BlockKind.QUOTE: ("> ", "> "),
    BlockKind.ROW: ("", " " * (_NAME_WIDTH + 1)),
}
"""What precedes the first line of a block, and the other ones."""


class AnswerRole(Enum):
    """What a line of an answer is."""

    HEADLINE = "headline"
    PLACE = "place"
    TEXT = "text"
    CODE = "code"
    NOTE = "note"


class AnswerLine(NamedTuple):
    """A line of an answer.

    Attributes:
        label: What precedes the text, padded to the width of all labels.
        text: The text.
        role: What it is.
    """

    label: str
    text: str
    role: AnswerRole


def answer_lines(answer: LogAnswer, width: int) -> list[AnswerLine]:
    """An answer in lines of at most ``width`` cells, apart from words and commands that cannot be broken.

    If they are too many, the second fix is shortened first.
    """
    width = max(40, width)
    lines = list(_lines(answer, width))
    if len(lines) > _MAX_LINES and answer.otherwise is not None:
        lines = list(_lines(replace(answer, otherwise=replace(answer.otherwise, code="")), width))
    if len(lines) > _MAX_LINES and answer.do is not None and len(answer.do.code.splitlines()) > 1:
        lines = [line for line in lines if line.text != _MORE]
    return lines


def _lines(answer: LogAnswer, width: int) -> Iterator[AnswerLine]:
    for text in _filled(answer.headline, width, 1 if answer.place else _MAX_TEXT_LINES):
        yield AnswerLine("", text, AnswerRole.HEADLINE)
    if answer.place:
        yield AnswerLine("  ", _clipped(answer.place, width - 2), AnswerRole.PLACE)
    yield from _step("DO", answer.do, width)
    yield from _step("ELSE", answer.otherwise, width)
    if answer.place and not answer.cache and len(answer.headline) > width:  # what to do stands on the third line
        yield from _labeled("ERROR", _cut_off(answer.headline, width - 1, width - _LABEL_WIDTH), width, 1)
    yield from _labeled("BECAUSE", answer.because, width, _MAX_TEXT_LINES)
    for number, text in enumerate(filter(None, answer.printed.split("\n"))):
        label = f"{'' if number else 'PRINTED':<{_LABEL_WIDTH}}"
        yield AnswerLine(label, _clipped(text, width - _LABEL_WIDTH), AnswerRole.TEXT)
    yield from _labeled("CACHE", answer.cache, width, 1)
    yield from _labeled("IGNORED", answer.ignored, width, 1)
    if answer.confidence:
        yield AnswerLine("", _clipped(f"confidence: {answer.confidence}", width), AnswerRole.NOTE)


def _step(label: str, step: Advice | None, width: int) -> Iterator[AnswerLine]:
    if step is None:
        return
    yield from _labeled(label, step.text, width, _MAX_TEXT_LINES)
    for text in _code(step.code, width - _LABEL_WIDTH):
        yield AnswerLine(" " * _LABEL_WIDTH, text, AnswerRole.CODE)


def _labeled(label: str, text: str, width: int, count: int) -> Iterator[AnswerLine]:
    if not text:
        return
    for number, line in enumerate(_shortened(text, width - _LABEL_WIDTH, count)):
        yield AnswerLine(f"{'' if number else label:<{_LABEL_WIDTH}}", line, AnswerRole.TEXT)


def _filled(text: str, width: int, count: int) -> list[str]:
    """A text in at most a number of lines, the last one cut."""
    lines = wrapped(text, width)
    return lines if len(lines) <= count else [*lines[: count - 1], _clipped(" ".join(lines[count - 1 :]), width)]


def _shortened(text: str, width: int, count: int) -> list[str]:
    """A text in at most a number of lines; a longer one ends with a complete clause, or with an ellipsis."""
    lines = wrapped(text, width)
    if len(lines) <= count:
        return lines
    room = sum(map(len, lines[:count])) + count - 1
    ends = [match.start() for match in _CLAUSE_END.finditer(text[:room])]
    if ends and ends[-1] > room // 2 and " says: " not in text[: ends[-1]]:  # a line that is quoted is only cut off
        return wrapped(f"{text[: ends[-1]]}.", width)
    return _filled(text, width, count)


def _cut_off(headline: str, start: int, width: int) -> str:
    """The error that a headline names; if it is too long, what was cut off at ``start`` and words before it."""
    error = headline.rpartition(" raised ")[2]
    words = error.split(" ")
    while len(" ".join(words)) > max(width, len(headline) - start) - len(_MORE) and len(words) > 1:
        del words[0]
    return error if len(error) <= width else _MORE + " ".join(words)


def _clipped(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def _code(code: str, width: int) -> list[str]:
    """The lines of code that do something; a long command is continued on the next line."""
    lines = [line for line in code.splitlines() if not _PREPARES.match(line)]
    shown: list[str] = []
    for line in lines[:_MAX_CODE_LINES]:
        shown += _continued(line, width)
    return [*shown[:_MAX_CODE_LINES], *([_MORE] if len(lines) > _MAX_CODE_LINES else [])][: _MAX_CODE_LINES + 1]


def _continued(line: str, width: int) -> list[str]:
    if len(line) <= width or line[:1].isspace() or " " not in line[: width - 2]:
        return [line]
    cut = line.rfind(" ", 0, width - 2)
    return [f"{line[:cut]} \\", *(f"  {rest}" for rest in _continued(line[cut + 1 :], width - 2))]


class LayoutLine(NamedTuple):
    """A line of text.

    Attributes:
        margin: What precedes the text: indentation, a bullet, or the name of a value.
        text: The text.
        kind: The kind of block that it belongs to, or None for a heading.
    """

    margin: str
    text: str
    kind: BlockKind | None


def layout(
    sections: Iterable[Section], width: int, *, indent: str = "", is_for_copying: bool = False
) -> Iterator[LayoutLine]:
    """Lays sections out, with an empty line between them.

    Args:
        sections: The sections.
        width: Cells per line.
        indent: Precedes every line but headings.
        is_for_copying: Whether code and long words may exceed the width instead of being wrapped.
    """
    for number, section in enumerate(sections):
        if number:
            yield LayoutLine("", "", BlockKind.PARAGRAPH)
        yield LayoutLine("", section.heading, None)
        for block in section.blocks:
            yield from _block_lines(block, width, indent, is_for_copying=is_for_copying)


def _block_lines(block: TextBlock, width: int, indent: str, *, is_for_copying: bool) -> Iterator[LayoutLine]:
    first, rest = _MARGINS[block.kind]
    text = block.text
    if block.kind is BlockKind.ROW:
        name, _, text = block.text.partition("\t")
        first = f"{name:<{_NAME_WIDTH}} "
    if block.kind is BlockKind.CODE and is_for_copying:
        lines = text.splitlines()
    else:
        lines = wrapped(text, width - len(indent) - len(rest), breaks_words=not is_for_copying)
    for number, line in enumerate(lines):
        yield LayoutLine(indent + (rest if number else first), line, block.kind)
