"""A pattern of the catalogue, prepared for the search: in lower case, with the texts that exclude most lines."""

import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from gpumon.errors.entry import KnownError, Wording
from gpumon.errors.patterns import (
    Literals,
    dense,
    ends_line,
    exact,
    folded,
    folded_regex,
    literals,
    looks_back,
    squeezed,
    wrapped,
)
from gpumon.errors.prefixes import without_prefix

MAX_MATCH: Final = 512
"""Maximum number of characters that a pattern of the catalogue matches, apart from spaces in joined lines."""


class CasedText(NamedTuple):
    """A text as written and in lower case, which have the same length."""

    written: str
    lower: str


def cased(text: str) -> CasedText:
    """A text with its lower-case form."""
    lower = text.lower()
    return CasedText(text, lower if len(lower) == len(text) else folded(text))


class LineMatch(NamedTuple):
    """A match of a pattern in a line, or in lines that were joined.

    Attributes:
        candidate: The pattern.
        match: The match; the case of its text may have been changed.
        line: The line with the match, broken lines joined.
        begin: Where this line starts in the text that was searched.
    """

    candidate: "PreparedPattern"
    match: re.Match[str]
    line: str
    begin: int = 0

    @property
    def start(self) -> int:
        """Where in the line the match starts."""
        return self.match.start() - self.begin

    @property
    def start_from_end(self) -> int:
        """Where the match starts relative to the end of the line, which is the same with and without a prefix."""
        return self.start - len(self.line)

    @property
    def length(self) -> int:
        """The number of characters that the pattern matched."""
        return self.match.end() - self.match.start()

    @property
    def groups(self) -> Mapping[str, str]:
        """The named groups of the pattern that are not empty."""
        spans = ((name, *self.match.span(name)) for name in self.match.re.groupindex)
        return {name: self.line[start - self.begin : end - self.begin] for name, start, end in spans if start < end}

    @property
    def quality(self) -> tuple[bool, int, int]:
        """Of two matches of the same text, the one with the greater quality counts."""
        return (not self.candidate.error.is_echo, self.length, -self.candidate.order)


@dataclass(frozen=True, eq=False)
class PreparedPattern:
    """A pattern of the catalogue.

    Attributes:
        order: The index of its error in the catalogue.
        error: Its error.
        pattern: The pattern.
    """

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
    def literals(self) -> tuple[str, ...]:
        """The texts that every match in a line contains."""
        return tuple(map(self._cased, self._literals.texts))

    @cached_property
    def dense_literals(self) -> tuple[str, ...]:
        """The texts that every match in joined lines contains, once whitespace is removed."""
        return tuple(map(dense, self.literals))

    @cached_property
    def dense_core(self) -> str:
        """The needle without whitespace, from its first to its last letter; the lines of the letters contain it."""
        return dense(self._cased(self._literals.needle)).strip(string.punctuation + string.digits)

    @cached_property
    def _regex(self) -> str:
        return self.pattern.regex if self.pattern.is_case_sensitive else folded_regex(self.pattern.regex)

    @cached_property
    def looks_back(self) -> bool:
        """Whether the text before a match decides as well, so that removing it may lead to a match."""
        return looks_back(self.pattern.regex)

    @cached_property
    def ends_line(self) -> bool:
        """Whether a match depends on where its line ends."""
        return ends_line(self.pattern.regex)

    @cached_property
    def _anchor(self) -> tuple[str, int]:
        """A text that every match in a line contains, and how many characters before it a match may start."""
        head = self._literals.head
        return (self._cased(head), 0) if head else (self._cased(self._literals.needle), MAX_MATCH)

    def has_core(self, dense_text: CasedText) -> bool:
        """Whether lines without whitespace contain the needle."""
        return self.dense_core in self._text(dense_text)

    def has_dense_literals(self, dense_text: CasedText) -> bool:
        """Whether joined lines without whitespace contain all texts that a match contains."""
        return all(map(self._text(dense_text).__contains__, self.dense_literals))

    @cached_property
    def _other_literals(self) -> tuple[str, ...]:
        """The texts that every match in a line contains, without those that the anchor contains."""
        anchor, _ = self._anchor
        return tuple(literal for literal in self.literals if literal not in anchor)

    def search(self, line: CasedText) -> re.Match[str] | None:
        """The first match in a line. What is far in front of the first required text is skipped."""
        text = line.written if self.pattern.is_case_sensitive else line.lower
        anchor, lead = self._anchor
        start = text.find(anchor)
        if start < 0:
            return None
        for literal in self._other_literals:
            if literal not in text:
                return None
        return exact(self._regex).search(text, max(0, start - lead))

    def wrapped_matches(self, joined: CasedText, start: int, end: int) -> Iterator[re.Match[str]]:
        """The matches in a part of lines that were joined without a separator."""
        return wrapped(self._regex).finditer(self._text(joined), start, end)

    def _cased(self, text: str) -> str:
        return text if self.pattern.is_case_sensitive else folded(text)

    def _text(self, text: CasedText) -> str:
        return text.written if self.pattern.is_case_sensitive else text.lower


def matches_in_line(candidates: Iterable[PreparedPattern], text: CasedText, complete: CasedText) -> list[LineMatch]:
    """The matches in a single line, without the prefix of a logger or else with it.

    Args:
        candidates: The patterns to try.
        text: The line without prefixes.
        complete: The line with them.
    """
    matches: list[LineMatch] = []
    rest: list[PreparedPattern] = []
    for candidate in candidates:
        match = candidate.search(text)
        if match is None:
            rest.append(candidate)
        else:
            matches.append(LineMatch(candidate, match, text.written))
    if not rest:
        return matches
    if complete.written != text.written:
        matches += _matches(rest, complete)
    looking_back = [candidate for candidate in rest if candidate.looks_back]
    if looking_back:
        single = without_prefix(complete.written)
        if single not in {text.written, complete.written}:
            matches += _matches(looking_back, cased(single))
    return matches


def _matches(candidates: Iterable[PreparedPattern], line: CasedText) -> Iterator[LineMatch]:
    for candidate in candidates:
        match = candidate.search(line)
        if match is not None:
            yield LineMatch(candidate, match, line.written)


def distinct(matches: Sequence[LineMatch]) -> tuple[LineMatch, ...]:
    """The matches of a line without those that overlap a better one, from left to right.

    An error is counted once per line, and an echo only in a line without other errors.
    """
    if len(matches) < 2:
        return tuple(matches)
    kept: list[tuple[int, int, LineMatch]] = []
    ids: set[str] = set()
    for match in sorted(matches, key=lambda match: (match.quality, -match.start_from_end), reverse=True):
        error = match.candidate.error
        start = match.start_from_end
        end = start + match.length
        is_free = all(end <= other_start or start >= other_end for other_start, other_end, _ in kept)
        if is_free and error.id not in ids and not (error.is_echo and kept and not kept[0][2].candidate.error.is_echo):
            kept.append((start, end, match))
            ids.add(error.id)
    return tuple(match for _, _, match in sorted(kept, key=lambda item: item[0]))
