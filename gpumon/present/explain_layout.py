"""The layout of an explanation as lines of text, the same for the screen and the command line.

It is separate from `present.explain`, which imports Rich, so that `gpumon explain` starts quickly.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from gpumon.errors.text_blocks import BlockKind, Section, TextBlock
from gpumon.present.paint.line import wrapped

_NAME_WIDTH: Final = 25
_MARGINS: Final = {
    BlockKind.PARAGRAPH: ("", ""),
    BlockKind.ITEM: ("- ", "  "),
    BlockKind.CODE: ("    ", "    "),
    BlockKind.QUOTE: ("> ", "> "),
    BlockKind.ROW: ("", " " * (_NAME_WIDTH + 1)),
}
"""What precedes the first line of a block, and the other ones."""


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
