"""A pattern of the catalogue, prepared for the search, and where it is found."""

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from gpumon.errors.entry import KnownError, Wording
from gpumon.errors.patterns import Literals, dense, ends_line, exact, folded, folded_regex, literals, squeezed, wrapped
from gpumon.errors.scan import RankLines

MAX_MATCH: Final = 512
"""Maximum number of characters that a pattern of the catalogue matches, apart from spaces in joined lines."""
REACH_LINES: Final = 24
"""Lines before and after an error in which the rest of its message is searched."""
_MAX_TEXT: Final = 4096
"""Characters of the text from an error on."""


class CasedText(NamedTuple):
    """A text as written and in lower case, which have the same length."""

    written: str
    lower: str


def cased(text: str) -> CasedText:
    """A text with its lower-case form."""
    return CasedText(text, folded(text))


@dataclass(frozen=True, eq=False)
class PreparedPattern:
    """A pattern of the catalogue."""

    order: int
    error: KnownError
    pattern: Wording

    @property
    def _literals(self) -> Literals:
        return literals(self.pattern.regex)

    @cached_property
    def letters(self) -> bytes:
        """The letters of its needle."""
        return squeezed(self._literals.needle)

    @cached_property
    def _dense_literals(self) -> tuple[str, ...]:
        """The texts that every match in joined lines contains, once whitespace is removed."""
        return tuple(dense(self._cased(text)) for text in self._literals.texts)

    @cached_property
    def _dense_core(self) -> str:
        """The needle without whitespace, from its first to its last letter; the lines of the letters contain it."""
        return dense(self._cased(self._literals.needle)).strip(string.punctuation + string.digits)

    @cached_property
    def _regex(self) -> str:
        return self.pattern.regex if self.pattern.is_case_sensitive else folded_regex(self.pattern.regex)

    @cached_property
    def ends_line(self) -> bool:
        """Whether a match depends on where its line ends."""
        return ends_line(self.pattern.regex)

    @cached_property
    def _required(self) -> tuple[str, int, tuple[str, ...]]:
        """A text that every match has, how many characters before it a match may start, and the other such texts."""
        head, lead = (self._literals.head, 0) if self._literals.head else (self._literals.needle, MAX_MATCH)
        anchor = self._cased(head)
        others = (self._cased(text) for text in self._literals.texts)
        return anchor, lead, tuple(text for text in others if text not in anchor)

    def has_core(self, dense_text: CasedText) -> bool:
        """Whether lines without whitespace contain the needle."""
        return self._dense_core in self._text(dense_text)

    def search(self, line: CasedText) -> re.Match[str] | None:
        """The first match in a line. What is far in front of the first required text is skipped."""
        text, (anchor, lead, others) = self._text(line), self._required
        start = text.find(anchor) if all(map(text.__contains__, others)) else -1
        return None if start < 0 else exact(self._regex).search(text, max(0, start - lead))

    def wrapped_matches(
        self, joined: CasedText, dense_text: CasedText, parts: Sequence[tuple[int, int]]
    ) -> Iterator[re.Match[str]]:
        """The matches in parts of lines that were joined without a separator; the dense text has no whitespace."""
        if all(map(self._text(dense_text).__contains__, self._dense_literals)):
            for start, end in parts:
                yield from wrapped(self._regex).finditer(self._text(joined), start, end)

    def _cased(self, text: str) -> str:
        return text if self.pattern.is_case_sensitive else folded(text)

    def _text(self, text: CasedText) -> str:
        return text.written if self.pattern.is_case_sensitive else text.lower


class LineMatch(NamedTuple):
    """A match of a pattern in a line, or in lines that were joined.

    Attributes:
        match: The match; the case of its text may have been changed.
        line: The line with the match, broken lines joined.
        begin: Where this line starts in the text that was searched.
    """

    candidate: PreparedPattern
    match: re.Match[str]
    line: str
    begin: int = 0

    @property
    def groups(self) -> Mapping[str, str]:
        """The named groups of the pattern that are not empty."""
        spans = ((name, *self.match.span(name)) for name in self.match.re.groupindex)
        return {name: self.line[start - self.begin : end - self.begin] for name, start, end in spans if start < end}

    @property
    def quality(self) -> tuple[bool, int, int]:
        """Of two matches of the same text, the one with the greater quality counts."""
        length = self.match.end() - self.match.start()
        return (not self.candidate.error.is_echo, length, -self.candidate.order)


class PatternHit(NamedTuple):
    """A known error in the lines of a block.

    Attributes:
        start: Its first line, and where it starts relative to the end of this line, which is the same with a prefix.
        end: Its last line, and where it ends relative to the end of this line.
        next_row: The first line after those that were searched together.
        rest: What follows the match in them.
    """

    line_match: LineMatch
    lines: RankLines
    start: tuple[int, int]
    end: tuple[int, int]
    next_row: int
    rest: str = ""

    @property
    def error(self) -> KnownError:
        """The entry of the catalogue."""
        return self.line_match.candidate.error

    @property
    def rows(self) -> range:
        """Its lines."""
        return range(self.start[0], self.end[0] + 1)

    @property
    def position(self) -> int:
        """The index of its first line in the block."""
        return self.lines.positions[self.start[0]]

    @property
    def text(self) -> str:
        """The text from the error on, broken lines joined, for values that follow the error."""
        end = min(self.next_row + REACH_LINES, self.lines.of_rank(self.next_row - 1).stop)
        following = (text.strip() for text in self.lines.texts[self.next_row : end])
        start = self.line_match.match.start() - self.line_match.begin
        return (self.line_match.line[start:] + self.rest + "".join(following))[:_MAX_TEXT]


def hit_in_line(line_match: LineMatch, lines: RankLines, row: int) -> PatternHit:
    """A match within a line."""
    start, end = (place - len(line_match.line) for place in line_match.match.span())
    return PatternHit(line_match, lines, (row, start), (row, end), row + 1)
