"""Explanations of errors as lines of the screen, and the catalogue entry of an error that a run reports."""

from functools import lru_cache
from typing import Final

from gpumon.errors.entry import KnownError
from gpumon.errors.explain import explain_text
from gpumon.errors.explanation import Explanation
from gpumon.errors.narrative import sections
from gpumon.errors.text_blocks import BlockKind
from gpumon.present.explain_text import AnswerLine, AnswerRole, LayoutLine, answer_lines, layout
from gpumon.present.paint.line import Line, Role, Span, clipped, line, wrapped

HINT: Final = (
    "Paste a log or a traceback of one or several processes: how it ended, why, and what to do appear here. "
    "A new paste replaces the text; enter begins to type."
)
SAMPLE: Final = (
    "Traceback (most recent call last):\n"
    '  File "/home/ana/train.py", line 96, in <module>\n'
    "    main()\n"
    '  File "/home/ana/train.py", line 71, in main\n'
    "    loss = model(batch).mean()\n"
    "           ^^^^^^^^^^^^\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.81 GiB "
    "of which 3.12 GiB is free. Process 4242 has 120.50 GiB memory in use. Including non-PyTorch memory, this process "
    "has 16.10 GiB memory in use. Of the allocated memory 12.00 GiB is allocated by PyTorch, and 3.50 GiB is reserved "
    "by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management "
    " (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)\n"
)
"""A pasted error, for the self-test and its screenshot."""
_ROLES: Final = {AnswerRole.CODE: Role.ACCENT, AnswerRole.NOTE: Role.DIM}
_MAX_CACHED_TEXTS: Final = 256


def explanation_lines(explanation: Explanation, width: int, *, is_long: bool = False) -> list[Line]:
    """The short answer; then, if wanted, the cause in full, the other fixes, and the other errors."""
    lines = [_answer_line(item, width) for item in answer_lines(explanation.answer, width)]
    if not is_long:
        return lines
    return [*lines, (), *(_screen_line(laid_out, width) for laid_out in layout(sections(explanation), width))]


def _answer_line(item: AnswerLine, width: int) -> Line:
    if item.role is AnswerRole.HEADLINE:
        return line(Span(item.text.ljust(width), Role.HEADING))
    return line(Span(item.label, Role.DIM), Span(item.text, _ROLES.get(item.role, Role.PLAIN)))


def hint_lines(width: int) -> list[Line]:
    """The purpose of the screen, shown while there is no text."""
    return [line(Span(text, Role.DIM)) for text in wrapped(HINT, width)]


def reading_lines(width: int) -> list[Line]:
    """A notice that a long text is being read."""
    return [line(Span("Reading ...".ljust(width), Role.DIM))]


def _screen_line(laid_out: LayoutLine, width: int) -> Line:
    if laid_out.kind is None:
        return line(Span(clipped(laid_out.text, width).ljust(width), Role.HEADING))
    role = Role.ACCENT if laid_out.kind is BlockKind.CODE else Role.PLAIN
    return line(Span(laid_out.margin, Role.DIM), Span(laid_out.text, role))


@lru_cache(maxsize=_MAX_CACHED_TEXTS)
def known_error_in(text: str) -> KnownError | None:
    """The known error that a text contains, or None; cached, because a run is drawn several times per second."""
    cause = explain_text(text).cause
    return None if cause is None else cause.error
