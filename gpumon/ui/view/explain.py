"""Explanations of errors as lines: what an error is, what mends it, and the sentence beside an error of a run."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from gpumon.diagnosis.explain import explain_text
from gpumon.diagnosis.explanation import Explanation
from gpumon.diagnosis.known import KnownError
from gpumon.diagnosis.narrative import NOTHING_FOUND, BlockKind, TextBlock, sections
from gpumon.ui.paint.line import Line, Role, Span, clipped, line
from gpumon.ui.paint.text import wrapped

HINT: Final = (
    "Paste a log or a traceback, of one process or of many: what it means and what mends it will stand here. "
    "Another paste takes its place."
)
SAMPLE: Final = (
    "Traceback (most recent call last):\n"
    '  File "train.py", line 41, in <module>\n'
    "    loss = model(batch).mean()\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.81 GiB "
    "of which 3.12 GiB is free. Process 4242 has 120.50 GiB memory in use. Including non-PyTorch memory, this process "
    "has 16.10 GiB memory in use. Of the allocated memory 12.00 GiB is allocated by PyTorch, and 3.50 GiB is reserved "
    "by PyTorch but unallocated.\n"
)
"""An error as it is pasted, for the self-test and its picture."""
_NAME_WIDTH: Final = 24
_KEPT_TEXTS: Final = 256


def explanation_lines(found: Explanation, width: int) -> list[Line]:
    """The first cause in full, and what else was found; where nothing was, what to do about that."""
    lines: list[Line] = []
    for section in sections(found):
        lines += [()] if lines else []
        lines.append(_heading(section.heading, width))
        for block in section.blocks:
            lines += _block_lines(block, width)
    if not lines:
        count = "a line" if found.lines == 1 else f"{found.lines:,} lines"
        lines.append(_heading(f"There is no known error in {count}", width))
        lines += [line(each) for each in wrapped(NOTHING_FOUND, width)]
    return lines


def hint_lines(width: int) -> list[Line]:
    """What the screen is for, while there is nothing to explain."""
    return [line(Span(each, Role.DIM)) for each in wrapped(HINT, width)]


def reading_lines(width: int) -> list[Line]:
    """That a long text takes its time."""
    return [line(Span("Reading ...".ljust(width), Role.DIM))]


def _heading(text: str, width: int) -> Line:
    return line(Span(clipped(text, width).ljust(width), Role.HEADING))


def _block_lines(block: TextBlock, width: int) -> Iterator[Line]:
    first, rest, role = {
        BlockKind.PARAGRAPH: ("", "", Role.PLAIN),
        BlockKind.ITEM: ("- ", "  ", Role.PLAIN),
        BlockKind.CODE: ("    ", "    ", Role.ACCENT),
        BlockKind.QUOTE: ("| ", "| ", Role.PLAIN),
        BlockKind.ROW: ("", " " * (_NAME_WIDTH + 1), Role.PLAIN),
    }[block.kind]
    text = block.text
    if block.kind is BlockKind.ROW:
        name, _, text = block.text.partition("\t")
        first = f"{name:<{_NAME_WIDTH}} "
    for number, each in enumerate(wrapped(text, width - len(rest))):
        yield line(Span(rest if number else first, Role.DIM), Span(each, role))


@lru_cache(maxsize=_KEPT_TEXTS)
def recognised(text: str) -> KnownError | None:
    """The known error that a text is of, or None; kept, since a run is drawn several times a second."""
    cause = explain_text(text).cause
    return None if cause is None else cause.error
