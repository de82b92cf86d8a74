"""Explanations of errors as lines of the screen, and the catalogue entry of an error that a run reports."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pkgutil import get_data
from typing import Final, NamedTuple

from gpumon.errors.answer import LogAnswer
from gpumon.errors.entry import KnownError
from gpumon.errors.explain import explain_text
from gpumon.errors.explanation import Explanation
from gpumon.errors.narrative import FIXES, NEXT_STEPS, BlockKind, Section, sections
from gpumon.present.explain_text import AnswerRole, answer_lines, layout
from gpumon.present.paint.line import Line, Role, Span, clipped, line, wrapped

HINT: Final = (
    " Paste a log or a traceback: how it ended, why, and what to do. Or choose an error; / searches all of them."
)
SAMPLE: Final = (get_data(__package__, "sample_error.txt") or b"").decode()
"""A pasted error, for the self-test and its screenshot."""
_ROLES: Final = {AnswerRole.CODE: Role.ACCENT, AnswerRole.NOTE: Role.DIM}
_MAX_CACHED_TEXTS: Final = 256


class FixLine(NamedTuple):
    """A line of an explanation.

    Attributes:
        line: The line.
        fix: Number of the thing to do that it belongs to; 0 for none.
        copied: The code of that thing, or its text without code.
    """

    line: Line
    fix: int = 0
    copied: str = ""


def explanation_lines(explanation: Explanation, width: int, *, is_long: bool = False) -> list[FixLine]:
    """The short answer; then, if wanted, the cause in full, the other fixes, and the other errors.

    The things to do are numbered: those of the short answer, or those of the long form.
    """
    lines = list(_answer(explanation.answer, width, is_numbered=not is_long))
    return [*lines, FixLine(()), *section_lines(sections(explanation), width)] if is_long else lines


def _answer(answer: LogAnswer, width: int, *, is_numbered: bool) -> Iterator[FixLine]:
    steps = {"DO": (1, answer.do), "ELSE": (2, answer.otherwise)} if is_numbered else {}
    fix, step = 0, None
    for item in answer_lines(answer, width):
        name, label = item.label.strip(), item.label
        if name or item.role is AnswerRole.NOTE:
            fix, step = steps.get(name, (0, None))
            label = f"{fix} {name}".ljust(len(label)) if fix else label
        if item.role is AnswerRole.HEADLINE:
            yield FixLine(line(Span(item.text.ljust(width), Role.HEADING)))
        else:
            shown = line(Span(label, Role.DIM), Span(item.text, _ROLES.get(item.role, Role.PLAIN)))
            yield FixLine(shown, fix, "" if step is None else step.code or step.text)


def section_lines(shown: Sequence[Section], width: int) -> Iterator[FixLine]:
    """Sections with an empty line between them; the things to do are numbered through all of them."""
    fix, copied = 0, ""
    for number, section in enumerate(shown):
        if number:
            yield FixLine(())
        yield FixLine(line(Span(clipped(section.heading, width).ljust(width), Role.HEADING)))
        is_numbered = section.heading in {FIXES, NEXT_STEPS}
        for block, following in zip(section.blocks, (*section.blocks[1:], None), strict=True):
            if is_numbered and block.kind is BlockKind.ITEM:
                fix += 1
                has_code = following is not None and following.kind is BlockKind.CODE
                copied = following.text if following is not None and has_code else block.text
            for row, laid_out in enumerate([*layout([Section("", (block,))], width)][1:]):
                margin = f"{fix} " if is_numbered and block.kind is BlockKind.ITEM and not row else laid_out.margin
                role = Role.ACCENT if laid_out.kind is BlockKind.CODE else Role.PLAIN
                shown_line = line(Span(margin, Role.DIM), Span(laid_out.text, role))
                yield FixLine(shown_line, *((fix, copied) if is_numbered else ()))


def hint_lines(width: int) -> list[Line]:
    """The purpose of the screen, shown while there is no text."""
    return [line(Span(text, Role.DIM)) for text in wrapped(HINT, width)]


def reading_lines(width: int) -> list[Line]:
    """A notice that a long text is being read."""
    return [line(Span("Reading ...".ljust(width), Role.DIM))]


@lru_cache(maxsize=_MAX_CACHED_TEXTS)
def known_error_in(text: str) -> KnownError | None:
    """The known error that a text contains, or None; cached, because a run is drawn several times per second."""
    cause = explain_text(text).cause
    return None if cause is None else cause.error
