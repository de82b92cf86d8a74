"""Memory tests: patterns are written to blocks of memory, read back, inverted, and read back again.

All comparisons are exclusive-ors of 64-bit integers on the device. Floating-point numbers are never used, because some
bit patterns are NaN, which is not equal to itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

from _kit.events import UnsupportedError

if TYPE_CHECKING:
    from _kit.context import Context

WORD_BYTES = 8
BLOCK_BYTES = 256 << 20
"""Bytes of an allocation, and of the scratch memory in which a block is compared."""
_WORD_BITS = 64
_MASK = (1 << _WORD_BITS) - 1
_SEED = 20260
_CHECKERBOARD = 0x5555555555555555
_MAX_FAULTS = 16
"""Faults whose address is kept; all wrong words are counted."""
_MIN_BYTES = 1 << 20
_COUNTED_WORDS = 4 << 20
"""Words that are counted at once: torch uses temporary memory for each of them."""

Fill = Callable[[Any, Any, int, int], object]
"""Writes a pattern: torch, a block of 64-bit words, the index of its first word in the memory, and the round."""


def zeros(torch: Any, words: Any, first: int, round_number: int) -> None:  # noqa: ARG001 - all fills have one signature
    """Writes zeros; their inverse are ones."""
    words.zero_()


def checkerboard(torch: Any, words: Any, first: int, round_number: int) -> None:  # noqa: ARG001
    """Writes alternating bits; their inverse has them the other way around."""
    words.fill_(_CHECKERBOARD)


def walking_bit(torch: Any, words: Any, first: int, round_number: int) -> None:
    """Writes words with one bit set, at a place that moves by one bit with each word and with each round."""
    places = (torch.arange(_WORD_BITS, device=words.device) + first + round_number) % _WORD_BITS
    bits = torch.ones_like(places).bitwise_left_shift_(places)
    complete = words.numel() // _WORD_BITS * _WORD_BITS
    words[:complete].view(-1, _WORD_BITS).copy_(bits)
    words[complete:].copy_(bits[: words.numel() - complete])


def address(torch: Any, words: Any, first: int, round_number: int) -> None:  # noqa: ARG001
    """Writes to each word its own address, so that a word that is stored at the place of another is found."""
    torch.arange(first * WORD_BYTES, (first + words.numel()) * WORD_BYTES, WORD_BYTES, out=words)


def random_words(torch: Any, words: Any, first: int, round_number: int) -> None:
    """Writes random words; the same seed writes the same words again for the comparison."""
    generator = torch.Generator(device=words.device).manual_seed(_SEED + first + (round_number << 40))
    words.random_(-(1 << 63), None, generator=generator)


PATTERNS: dict[str, Fill] = {
    "zeros": zeros,
    "checkerboard": checkerboard,
    "walking_bit": walking_bit,
    "address": address,
    "random": random_words,
}


@dataclass(frozen=True)
class MemoryFault:
    """A word that did not keep its value.

    Attributes:
        offset: Byte offset in the tested memory.
        pattern: Name of the pattern.
        expected: What was written.
        actual: What was read.
        count: Wrong words in the same block, this one included.
    """

    offset: int
    pattern: str
    expected: int
    actual: int
    count: int

    @property
    def bits(self) -> list[int]:
        """The places of the wrong bits; 0 is the lowest."""
        return [bit for bit in range(_WORD_BITS) if (self.expected ^ self.actual) >> bit & 1]

    @property
    def text(self) -> str:
        """The fault in words."""
        bits = self.bits
        places = ", ".join(map(str, bits[:4])) + (f" and {len(bits) - 4} more" if len(bits) > 4 else "")
        return (
            f"at offset {self.offset:#x}, bit{'s' * (len(bits) > 1)} {places} (pattern {self.pattern}: "
            f"{self.expected:#018x} was written, {self.actual:#018x} was read)"
        )


@dataclass
class MemoryTally:
    """What a memory test has done.

    Attributes:
        compared_bytes: Bytes compared.
        moved_bytes: Bytes of the tested memory written and read.
        rounds: Complete rounds over all patterns and their inverses.
        wrong_words: Words with a wrong value.
        faults: The first of them in each block, at most sixteen.
    """

    compared_bytes: int = 0
    moved_bytes: int = 0
    rounds: int = 0
    wrong_words: int = 0
    faults: list[MemoryFault] = field(default_factory=list)


class MemoryTest:
    """Blocks of memory, and the patterns that they must keep.

    Args:
        context: The run; stopping it ends the allocation and the steps.
        size_bytes: Memory to take; less is taken if the device has less.

    Raises:
        UnsupportedError: Not even a megabyte could be allocated.
    """

    def __init__(self, context: Context, size_bytes: int) -> None:
        torch = context.torch
        self.tally = MemoryTally()
        self._context = context
        block = min(BLOCK_BYTES, max(_MIN_BYTES, size_bytes)) // WORD_BYTES
        self._scratch = torch.empty(block, dtype=torch.int64, device=context.device)
        self._blocks: list[Any] = []
        left = size_bytes // WORD_BYTES
        while left * WORD_BYTES >= _MIN_BYTES and not context.stopping:
            try:
                self._blocks.append(torch.empty(min(block, left), dtype=torch.int64, device=context.device))
            except torch.cuda.OutOfMemoryError:  # another process took memory after it was measured
                del self._blocks[-1:]  # the comparisons need some
                break
            left -= self._blocks[-1].numel()
        if not self._blocks and not context.stopping:
            raise UnsupportedError("Not even a megabyte of memory could be allocated for the test.")

    @property
    def size_bytes(self) -> int:
        """Bytes under test."""
        return WORD_BYTES * sum(int(block.numel()) for block in self._blocks)

    @property
    def block_count(self) -> int:
        """Number of blocks."""
        return len(self._blocks)

    @property
    def steps_per_round(self) -> int:
        """Steps of `round`."""
        return 3 * len(PATTERNS) * len(self._blocks)

    def round(self, number: int) -> Iterator[str]:
        """Tests every pattern and its inverse once; yields the name of the pattern after each block.

        Three sweeps per pattern: write all blocks; compare and invert each; compare the inverse, from the last block
        to the first.
        """
        for name, fill in PATTERNS.items():
            for index in range(len(self._blocks)):
                self.write(index, fill, number)
                yield name
            for index in range(len(self._blocks)):
                self._compare(index, name, fill, number, is_inverted=False)
                self.invert(index)
                yield name
            for index in reversed(range(len(self._blocks))):
                self._compare(index, name, fill, number, is_inverted=True)
                yield name
        self.tally.rounds += 1

    def write(self, index: int, fill: Fill, number: int) -> None:
        """Writes a pattern to a block."""
        fill(self._context.torch, self._blocks[index], self._first(index), number)
        self.tally.moved_bytes += self._blocks[index].numel() * WORD_BYTES

    def invert(self, index: int) -> None:
        """Inverts every bit of a block in place."""
        self._blocks[index].bitwise_not_()
        self.tally.moved_bytes += 2 * self._blocks[index].numel() * WORD_BYTES

    def flip_bit(self, offset: int, bit: int) -> None:
        """Flips one bit on purpose, to verify that the test finds it.

        Args:
            offset: Byte offset in the tested memory, a multiple of 8.
            bit: Bit of the word at that offset.
        """
        index, word = divmod(offset // WORD_BYTES, self._blocks[0].numel())
        mask = 1 << bit if bit < _WORD_BITS - 1 else -(1 << bit)
        self._blocks[index][word : word + 1].bitwise_xor_(mask)

    def _first(self, index: int) -> int:
        """The index of a block's first word; only the last block can be smaller than the others."""
        return index * int(self._blocks[0].numel())

    def _compare(self, index: int, name: str, fill: Fill, number: int, *, is_inverted: bool) -> None:
        """Compares a block with its pattern, or with the inverse, and records the first wrong word."""
        block, torch = self._blocks[index], self._context.torch
        difference = self._scratch[: block.numel()]
        fill(torch, difference, self._first(index), number)
        if is_inverted:
            difference.bitwise_not_()
        difference.bitwise_xor_(block)
        self._context.checked += 1
        self.tally.compared_bytes += block.numel() * WORD_BYTES
        self.tally.moved_bytes += block.numel() * WORD_BYTES
        wrong = int(sum(torch.count_nonzero(part) for part in difference.split(_COUNTED_WORDS)))
        if not wrong:
            return
        self.tally.wrong_words += wrong
        if len(self.tally.faults) < _MAX_FAULTS:
            word = int((difference != 0).to(torch.uint8).argmax())
            wrong_bits = int(difference[word]) & _MASK  # as read in the comparison: a second read may differ
            fill(torch, difference, self._first(index), number)
            expected = (~int(difference[word]) if is_inverted else int(difference[word])) & _MASK
            pattern = f"inverse of {name}" if is_inverted else name
            offset = (self._first(index) + word) * WORD_BYTES
            self.tally.faults.append(MemoryFault(offset, pattern, expected, expected ^ wrong_bits, wrong))


def expected_compared_bytes(test: MemoryTest) -> int:
    """Returns the bytes that the complete rounds must have compared; fewer mean that a step was skipped."""
    return test.tally.rounds * 2 * len(PATTERNS) * test.size_bytes
