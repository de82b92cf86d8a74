"""The fast search for errors finds the same as a simple one, whatever it skips."""

import random
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.errors import needles, wrapped_search
from gpumon.errors.explain import finder
from gpumon.errors.load import ERRORS
from gpumon.errors.needles import NeedleIndex
from gpumon.errors.patterns import LetterWords, exact, squeezed
from gpumon.errors.scan import LogBlock, RankLines, blocks
from tests.errors.hostile import PATTERNS, needle_of
from tests.errors.texts import WORDINGS

MAX_LINES: Final = 200
BROKEN_SAMPLES: Final = 60
BROKEN_LOGS: Final = 3


@cache
def all_letters() -> list[bytes]:
    """The letters of every needle."""
    return list(dict.fromkeys(squeezed(needle_of(pattern)) for _, pattern in PATTERNS))


@cache
def index() -> NeedleIndex:
    return NeedleIndex(ERRORS.index["needles"])


def block_of(text: str) -> LogBlock:
    (block,) = blocks([text.encode()])
    return block


def simple_search(letters: bytes) -> Iterator[tuple[bytes, int]]:
    for needle in all_letters():
        start = letters.find(needle)
        while start >= 0:
            yield needle, start
            start = letters.find(needle, start + len(needle))


def letters_of(numbers: list[tuple[int, int]]) -> bytes:
    """Needles, each cut after a number of letters."""
    return b"".join(all_letters()[number % len(all_letters())][: size or None] for number, size in numbers)


pieces_of_needles = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 20)), max_size=120).map(letters_of)


@pytest.mark.parametrize("max_searches", [0, 10_000], ids=["word by word", "needle by needle"])
@given(letters=pieces_of_needles)
def test_every_occurrence_of_a_needle_is_found(letters: bytes, max_searches: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(needles, "_MAX_SEARCHES", max_searches)
        occurrences = index().search(LetterWords(letters.decode()))
    assert set(occurrences) >= set(simple_search(letters))
    assert len(set(occurrences)) == len(occurrences)
    assert all(letters.startswith(needle, start) for needle, start in occurrences)


def sample_lines() -> list[str]:
    """Lines of samples, and the same lines with other digits."""
    lines = list(dict.fromkeys(line for _, text in WORDINGS for line in text.splitlines() if line.strip()))
    some = random.Random(1).sample(lines, MAX_LINES // 2)
    return [line for text in some for line in (text, re.sub(r"\d", lambda digit: str(9 - int(digit[0])), text))]


def test_the_errors_of_lines_are_those_that_every_pattern_would_find() -> None:
    """Each line has another rank, so that no message continues on the next line."""
    lines = sample_lines()
    block = block_of("".join(f"[rank{number}]: {line}\n" for number, line in enumerate(lines)))
    ids: dict[int, set[str]] = {}
    for hit in finder().hits(block):
        ids.setdefault(block.numbers[hit.position], set()).add(hit.error.id)
        assert hit.line_match.line in block.lines[hit.position]
        assert all(value in block.lines[hit.position] for value in hit.line_match.groups.values())
    for number, text, line in zip(block.numbers, block.texts, block.lines, strict=True):
        expected = {
            name.split()[0]
            for name, pattern in PATTERNS
            if (needle_of(pattern) in text or needle_of(pattern) in line)
            and (exact(pattern.regex).search(text.strip()) or exact(pattern.regex).search(line.strip()))
        }
        assert ids.get(number, set()) <= expected, line
        assert bool(ids.get(number)) == bool(expected), line
    assert len(ids) >= MAX_LINES // 4


def test_lines_that_differ_in_digits_have_their_own_values() -> None:
    log = "".join(
        f"[rank0]: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {gpu} has a total capacity of 79.1{gpu} GiB\n"
        for gpu in range(8)
    )
    hits = finder().hits(block_of(log))
    assert [hit.line_match.groups["gpu"] for hit in hits] == list("01234567")


def broken_samples(seed: int) -> list[str]:
    """Samples with one word per line."""
    samples = random.Random(seed).sample([text for _, text in WORDINGS], BROKEN_SAMPLES)
    return ["\n".join(text.split()) for text in samples]


def places(text: str) -> list[tuple[str, int, str]]:
    """The errors of a text with their first line and their text."""
    return [(hit.error.id, hit.position, hit.line_match.line) for hit in finder().hits(block_of(text))]


@pytest.mark.parametrize("seed", range(BROKEN_LOGS))
def test_broken_messages_of_several_ranks_are_those_of_each_rank(seed: int) -> None:
    texts = broken_samples(seed)
    ranks = [f"[rank{number}]: {line}" for number, text in enumerate(texts) for line in text.splitlines()]
    alone = {name for text in texts for name, _, _ in places(text)}
    assert {name for name, _, _ in places("\n".join(ranks))} == alone


def test_the_lines_around_needles_are_joined_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fourth needle, broken at every space, with another number each time."""
    joined = wrapped_search._joined
    calls: list[range] = []

    def counting(lines: RankLines, rows: range) -> object:
        calls.append(rows)
        return joined(lines, rows)

    monkeypatch.setattr(wrapped_search, "_joined", counting)
    some = [pattern for _, pattern in PATTERNS[::4]]
    letters = {squeezed(needle_of(pattern)) for pattern in some}
    text = "".join(f"{needle_of(pattern)} {number}\n".replace(" ", "\n") for number in range(2) for pattern in some)
    assert finder().hits(block_of(text))
    assert len(letters) / 8 < len(calls) <= 3 * len(letters)
