"""The parts of an explanation, for a terminal, a screen or a document to lay out."""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple

from gpumon.errors.entry import Fix


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
