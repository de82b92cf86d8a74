"""Finds what a program printed before an error about the same sizes or settings, such as the size of a vocabulary."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

from gpumon.core.text_table import table
from gpumon.errors import signs
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.raised import MAX_TEXT, NO_DIGITS
from gpumon.errors.reading import LogFailure, LogReading, NumberedLine
from gpumon.errors.signs import has_sign

_MAX_LINES: Final = 2
_MAX_PART: Final = 160
_SHORT: Final = 120
"""Characters of a line whose small numbers count: one with all arguments has any number."""
_MAX_WORDS: Final = 2
_MIN_NUMBER: Final = 10
_MIN_INDEX: Final = 2
_RARE_NUMBER: Final = 100
_MAX_ABOVE: Final = 1.5
"""How much larger a size may be that an index out of range belongs to."""
_MIN_GROWTH: Final = 1.3
_MIN_MESSAGE: Final = 12
_MIN_SIZES: Final = 3
_NO_SIGNS: Final = str.maketrans("", "", " .,+-")
_ROW: Final = lazy_pattern(r" =>(>?) ")
_DIGIT: Final = lazy_pattern(r"\d")
_NUMBER: Final = lazy_pattern(r"(?<![\w.:/-])\d{1,3}(?:,\d{3})+(?![\w.])|(?<![\d.:/-])\d{1,12}(?![\d:/-]|\.\d)")
_FILE: Final = lazy_pattern(r"[\w-]+(?:\.[\w-]+)*\.(?!py\b)[A-Za-z]\w{0,7}(?![\w./])")
_MEMORY: Final = lazy_pattern(
    r"(?i)(?:rss|mem\w*|ram|allocated)(?: now| used| usage)?\W{1,3}(\d+(?:\.\d+)?) ?([gm]i?b)\b"
)


class Printed(NamedTuple):
    """What a program printed before an error about the same sizes or settings.

    Attributes:
        lines: At most two, or the first and the last of those whose values grow.
        grown: The memory that grew to the end, as two sizes; empty if none did.
    """

    lines: Sequence[NumberedLine]
    grown: str

    @property
    def text(self) -> str:
        """The lines, each with its number."""
        return "\n".join(f"line {line.number:,}: {line.text.strip()[:_MAX_PART]}" for line in self.lines)

    @property
    def values(self) -> dict[str, str]:
        """What fixes may ask of them."""
        values = {"printed": "\n".join(line.text for line in self.lines), "grown": self.grown}
        return {name: value for name, value in values.items() if value}


class _Likeness(NamedTuple):
    """How much a line is about the same as an error.

    Attributes:
        grade: The words, numbers and files that both have.
        start: Where the first such word is.
        grows: Whether its values grow from line to line, so that the first one counts too.
    """

    grade: int
    start: int
    grows: bool


class _Subject(NamedTuple):
    """What an error is about.

    Attributes:
        forms: Regular expressions of lines about it, from `subjects.txt`, and whether values grow in them.
        numbers: The sizes in its message.
        files: The names of files in its message.
        is_index: Whether an index is out of range.
        message: What a line says again that says more; empty if it is short.
    """

    forms: dict[str, bool]
    numbers: frozenset[int]
    files: frozenset[str]
    is_index: bool
    message: str

    def likeness(self, text: str) -> _Likeness:
        """How much a line is about it."""
        by_form = {form: matches for form in self.forms if (matches := list(lazy_pattern(form).finditer(text)))}
        sizes, files = _numbers(text, self.is_index), self.files.intersection(_FILE.findall(text))
        is_same = bool(self.message) and self.message in text
        if not (files or is_same or _DIGIT.search(text)):
            return _Likeness(0, 0, grows=False)
        start = min((matches[0].start() for matches in by_form.values()), default=0)
        counts_small, highest = bool(by_form) or self.is_index or len(text) < _SHORT, max(self.numbers, default=0)
        grade = sum(min(_MAX_WORDS, len({match[0].lower() for match in matches})) for matches in by_form.values())
        grade += len(files) + _MAX_WORDS * is_same
        grade += sum(size >= _RARE_NUMBER or counts_small for size in self.numbers & sizes)
        grade += self.is_index and any(highest < size <= _MAX_ABOVE * highest for size in sizes)
        return _Likeness(grade, start, any(self.forms[form] for form in by_form))


def _subject_of(failure: LogFailure) -> _Subject:
    """What an error is about, by its message and the lines of code that failed."""
    frames, message = (failure.raised.asking, failure.raised.raising, failure.frame), failure.raised.first_words
    said = "\n".join((failure.text[:MAX_TEXT], *(frame.marked for frame in frames if frame)))
    rows = map(_ROW.split, table("gpumon.errors", "subjects"))
    forms = {line: bool(grows) for error, grows, line in rows if lazy_pattern(error).search(said)}
    is_index = has_sign("out of range", failure.text)
    same = message.strip(" .!")
    same = same if len(same) >= _MIN_MESSAGE else ""
    return _Subject(forms, frozenset(_numbers(message, is_index)), frozenset(_FILE.findall(message)), is_index, same)


def _similar(failure: LogFailure, reading: LogReading) -> list[list[NumberedLine]]:
    """The lines that are most about the same as an error, those that only differ in their numbers together."""
    if failure.source:  # several files were read as one log
        return []
    subject, first = _subject_of(failure), failure.first_line or failure.line
    known = {notice.line for notice in reading.notices} | {item.line for item in reading.open}
    lines = {line.number: line.text for line in (*reading.before, *reading.start) if line.number < first}
    counts = Counter(map(_shape, lines.values()))
    best: dict[str, tuple[int, list[NumberedLine]]] = {}
    for number, text in sorted(lines.items()):
        like, count = subject.likeness(text), counts[_shape(text)]
        is_work = signs.progress(text) is not None and (count > 1 or has_sign("work", text.lower()))
        if (
            number in known
            or has_sign("no setting", text)
            or text.strip() in failure.text
            or (is_work and not like.grows)
        ):
            continue
        grade = 2 * like.grade - (count > 1)
        before, same = best.get(_shape(text), (1, []))
        if grade >= before:
            line = NumberedLine(number, _part(text, like.start))
            best[_shape(text)] = grade, [*same, line] if like.grows else [line]
    return [same for _, same in sorted(best.values(), key=_order)][:_MAX_LINES]


def printed_before(failure: LogFailure, reading: LogReading) -> Printed:
    """What the program printed before an error about the same sizes or settings."""
    similar = _similar(failure, reading)
    sizes = ([_MEMORY.search(line.text) for line in same] for same in similar)
    grown = (f"{same[0][0]} to {same[-1][0]}" for same in map(_known, sizes) if _has_grown(same))
    ends = chain.from_iterable({same[0], same[-1]} for same in similar)  # the only one of those that do not grow
    return Printed(sorted(ends), next(grown, ""))


def _known(sizes: Sequence[re.Match[str] | None]) -> list[re.Match[str]]:
    return [size for size in sizes if size is not None]


def _order(graded: tuple[int, list[NumberedLine]]) -> tuple[int, bool, int]:
    """The most similar line first, then a short one, then the last one."""
    grade, same = graded
    return -grade, len(same[-1].text) > _MAX_PART // 2, -same[-1].number


def _has_grown(sizes: Sequence[re.Match[str]]) -> bool:
    """Whether a size grew, and still did at the end."""
    if len(sizes) < _MIN_SIZES or len({size[2] for size in sizes}) > 1:
        return False
    first, before, last = (float(sizes[place][1]) for place in (0, -2, -1))
    return last > _MIN_GROWTH * first and last > before


def _shape(text: str) -> str:
    return text.translate(NO_DIGITS).translate(_NO_SIGNS)


def _part(text: str, start: int) -> str:
    """The part of a long line, such as one with all arguments, that is about the same, or has the first number."""
    digit = _DIGIT.search(text)
    start = max(start, digit.start()) if digit is not None and digit.start() > _SHORT else start
    return text if start <= _MAX_PART // 2 else f"… {text[start - _MAX_PART // 4 :].partition(' ')[2]}"


def _numbers(text: str, is_index: bool) -> set[int]:
    sizes = (int(number.replace(",", "")) for number in _NUMBER.findall(text))
    return {number for number in sizes if number >= (_MIN_INDEX if is_index else _MIN_NUMBER)}
