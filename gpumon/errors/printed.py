"""Finds what a program printed before an error about the same sizes or settings, such as the size of a vocabulary."""

import re
from collections import Counter
from itertools import chain, pairwise
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
_NO_SIGNS: Final = str.maketrans("", "", " .,+-")
_ROW: Final = lazy_pattern(r" =>(>?) ")
_DIGIT: Final = lazy_pattern(r"\d")
_NUMBER: Final = lazy_pattern(r"(?<![\w.:/-])\d{1,3}(?:,\d{3})+(?![\w.])|(?<![\d.:/-])\d{1,12}(?![\d:/-]|\.\d)")
_FILE: Final = lazy_pattern(r"[\w-]+(?:\.[\w-]+)*\.(?!py\b)[A-Za-z]\w{0,7}(?![\w./])")
_MEMORY: Final = lazy_pattern(r"(?i)(?:rss|mem\w*|ram)\W{1,3}(?:usage\W{1,2})?(\d+(?:\.\d+)?) ?([gm]i?b)\b")


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
    """

    forms: dict[str, bool]
    numbers: frozenset[int]
    files: frozenset[str]
    is_index: bool

    def likeness(self, text: str) -> _Likeness:
        """How much a line is about it."""
        by_form = {form: matches for form in self.forms if (matches := list(lazy_pattern(form).finditer(text)))}
        sizes, files = _numbers(text, self.is_index), self.files.intersection(_FILE.findall(text))
        if not (files or _DIGIT.search(text)):
            return _Likeness(0, 0, grows=False)
        start = min((matches[0].start() for matches in by_form.values()), default=0)
        counts_small, highest = bool(by_form) or self.is_index or len(text) < _SHORT, max(self.numbers, default=0)
        grade = sum(min(_MAX_WORDS, len({match[0].lower() for match in matches})) for matches in by_form.values())
        grade += len(files) + sum(size >= _RARE_NUMBER or counts_small for size in self.numbers & sizes)
        grade += self.is_index and any(highest < size <= _MAX_ABOVE * highest for size in sizes)
        return _Likeness(grade, start, any(self.forms[form] for form in by_form))


def _subject_of(failure: LogFailure) -> _Subject:
    """What an error is about, by its message and the lines of code that failed."""
    frames, message = (failure.raised.asking, failure.raised.raising), failure.raised.first_words
    said = "\n".join((failure.text[:MAX_TEXT], *(frame.marked for frame in frames if frame)))
    rows = map(_ROW.split, table("gpumon.errors", "subjects"))
    forms = {line: bool(grows) for error, grows, line in rows if lazy_pattern(error).search(said)}
    is_index = has_sign("out of range", failure.text)
    return _Subject(forms, frozenset(_numbers(message, is_index)), frozenset(_FILE.findall(message)), is_index)


def printed_before(failure: LogFailure, reading: LogReading) -> list[NumberedLine]:
    """The lines that are most about the same as an error: the last one of those that only differ in their numbers."""
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
            best[_shape(text)] = grade, [*same[: like.grows], NumberedLine(number, _part(text, like.start))]
    ordered = sorted(best.values(), key=_order)
    return sorted(chain.from_iterable(same for _, same in ordered[:_MAX_LINES]))


def printed_text(failure: LogFailure, reading: LogReading) -> str:
    """These lines, each with its number."""
    lines = printed_before(failure, reading)
    return "\n".join(f"line {line.number:,}: {line.text.strip()[:_MAX_PART]}" for line in lines)


def printed_values(failure: LogFailure, reading: LogReading) -> dict[str, str]:
    """What fixes may ask of these lines: their text, and the size of memory that grew from one to another."""
    lines = printed_before(failure, reading)
    pairs = ((one.text, other.text) for one, other in pairwise(lines) if _shape(one.text) == _shape(other.text))
    sizes = ((_MEMORY.search(one), _MEMORY.search(other)) for one, other in pairs)
    grown = (f"{one[0]} to {other[0]}" for one, other in sizes if one and other and _has_grown(one, other))
    values = {"printed": "\n".join(line.text for line in lines), "grown": next(grown, "")}
    return {name: value for name, value in values.items() if value}


def _order(graded: tuple[int, list[NumberedLine]]) -> tuple[int, bool, int]:
    """The most similar line first, then a short one, then the last one."""
    grade, same = graded
    return -grade, len(same[-1].text) > _MAX_PART // 2, -same[-1].number


def _has_grown(one: re.Match[str], other: re.Match[str]) -> bool:
    return one[2] == other[2] and float(other[1]) > _MIN_GROWTH * float(one[1])


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
