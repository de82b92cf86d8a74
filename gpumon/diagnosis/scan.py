"""A log of any size as blocks of clean lines: colours gone, overlong lines cut, each with its number and its rank.

Neighbouring blocks overlap, so that a message on the border is whole in one of them. No more than two are held at once.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpumon.diagnosis.prefixes import split_prefixes

BLOCK_BYTES: Final = 1 << 21
LONGEST_LINE: Final = 4096
"""A longer line is cut; what is cut is read on like a line that a terminal has wrapped."""
OVERLAP_LINES: Final = 512
"""How far a message may reach, counted in lines of all ranks together."""

_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2048}(?:\x07|\x1b\\)|[@-Z\\-_])")
_CARET_ESCAPE: Final = re.compile(r"\^\[\[[0-9;]{0,20}m")
"""A colour as some viewers write it out."""


class Lane(NamedTuple):
    """Lines that follow one another in what one rank wrote.

    Attributes:
        places: Where they stand in the block.
        texts: What they say.
    """

    places: Sequence[int]
    texts: list[str]


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a log.

    Attributes:
        numbers: The number in the file of each line.
        lines: The lines as they were, without colours.
        texts: The lines without what loggers put before them.
        ranks: The rank that each line names.
        first: Lines before this one were looked at in the block before.
        end: Lines from this one on will be looked at again in the next block, with more after them.
    """

    numbers: list[int]
    lines: list[str]
    texts: list[str]
    ranks: list[int | None]
    first: int
    end: int

    def lanes(self) -> list[Lane]:
        """The lines of each rank by themselves; one without a rank goes with the line before, as wrapped lines do."""
        places: dict[int | None, list[int]] = {}
        rank: int | None = None
        for place, named in enumerate(self.ranks):
            rank = rank if named is None else named
            places.setdefault(rank, []).append(place)
        if len(places) == 1:
            return [Lane(range(len(self.texts)), self.texts)]
        return [Lane(each, [self.texts[place] for place in each]) for each in places.values()]


def blocks(chunks: Iterable[bytes]) -> Iterator[Block]:
    """Cuts what is read into blocks.

    Args:
        chunks: The log, in pieces of any size.
    """
    number = 1
    before: Block | None = None
    for data, is_last in _whole_lines(chunks):
        found = _clean(data, number)
        number += data.count(b"\n")
        before = _joined(before, found, is_last=is_last)
        yield before


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Pieces that end with a line, of about the size of a block, and whether one is the last."""
    waiting = bytearray()
    held: bytes | None = None
    for chunk in chunks:
        waiting += chunk
        while len(waiting) >= BLOCK_BYTES:
            end = waiting.rfind(b"\n", 0, BLOCK_BYTES) + 1 or BLOCK_BYTES
            if held is not None:
                yield held, False
            held = bytes(waiting[:end])
            del waiting[:end]
    if held is not None:
        yield held, not waiting
    if waiting or held is None:
        yield bytes(waiting), True


def _clean(data: bytes, first_number: int) -> Block:
    text = data.decode("utf-8", "replace")
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "^[[" in text:
        text = _CARET_ESCAPE.sub("", text)
    physical = text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
    numbers = list(range(first_number, first_number + len(physical)))
    lines = physical
    if "\r" in text or len(max(physical, key=len, default="")) > LONGEST_LINE:
        pairs = [(number, piece) for number, line in zip(numbers, physical, strict=True) for piece in _pieces(line)]
        numbers, lines = [number for number, _ in pairs], [piece for _, piece in pairs]
    ranks, texts = split_prefixes(lines)
    return Block(numbers, lines, texts, ranks, 0, len(lines))


def _pieces(line: str) -> Iterator[str]:
    """What a terminal would have shown one after the other (progress bars), and pieces of what is too long."""
    for shown in filter(None, line.split("\r")) if line.strip("\r") else [""]:
        for start in range(0, len(shown) or 1, LONGEST_LINE):
            yield shown[start : start + LONGEST_LINE]


def _joined(before: Block | None, found: Block, *, is_last: bool) -> Block:
    """A block with the end of the one before it."""
    end = len(found.lines) if is_last else max(0, len(found.lines) - OVERLAP_LINES)
    if before is None:
        return Block(found.numbers, found.lines, found.texts, found.ranks, 0, end)
    start = max(0, before.end - OVERLAP_LINES)
    kept = len(before.lines) - start
    return Block(
        before.numbers[start:] + found.numbers,
        before.lines[start:] + found.lines,
        before.texts[start:] + found.texts,
        before.ranks[start:] + found.ranks,
        before.end - start,
        kept + end,
    )
