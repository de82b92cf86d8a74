"""What a log shows about a failure beyond its message: its place, and lines near it or printed long before."""

import re
from collections import Counter
from itertools import chain, pairwise
from typing import Final

from gpumon.core.text_table import table
from gpumon.errors import signs
from gpumon.errors.advice import short_path
from gpumon.errors.entry import Code
from gpumon.errors.facts.packages import package_of
from gpumon.errors.facts.paths import path_values
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.raised import DIRECT, DURING, EXCEPTION, MAX_TEXT, NO_DIGITS
from gpumon.errors.reading import LogFailure, LogReading, NumberedLine
from gpumon.errors.relations import is_about
from gpumon.errors.signs import has_sign

_MAX_SAID: Final = 160
_LINES_OF_VALUE: Final = 3
_WORDS_OF_VALUE: Final = 2
_MAX_PRINTED: Final = 2
_PORT: Final = lazy_pattern(r"(?:, |[Pp]ort ?= ?|:)([1-9]\d{3,4})\b")
_SIZE: Final = lazy_pattern(
    r"(?:rss|mem\w*|ram)\W{1,3}(?:usage\W{1,2})?(\d+(?:\.\d+)?) ?([GMgm]i?[Bb])\b", re.IGNORECASE
)
_MAX_WORDS: Final = 2
_SHORT: Final = 120
_MAX_ABOVE: Final = 1.5
_MIN_GROWTH: Final = 1.3
_ROW: Final = lazy_pattern(r" =>(>?) ")
_FILE: Final = lazy_pattern(r"[\w-]+(?:\.[\w-]+)*\.(?!py\b)[A-Za-z]\w{0,7}(?![\w./])")
_DIGIT: Final = lazy_pattern(r"\d")
_MIN_NUMBER: Final = 10
_RARE_NUMBER: Final = 100
_NUMBER: Final = lazy_pattern(r"(?<![\w.:/-])\d{1,3}(?:,\d{3})+(?![\w.])|(?<![\d.:/-])\d{1,12}(?![\d:/-]|\.\d)")


def said_near(root: LogFailure, reading: LogReading) -> str:
    """What stands above an error that no entry has and may be its reason, or what a test that failed had caught."""
    if root.is_of_tests:
        raised = (item for item in reading.open if item.is_raised and not item.is_of_tests)
        return _says(next((NumberedLine(item.line, item.text) for item in raised if item.line > root.line), None))
    return _says(line_near(root, reading) or _value_near(root)) or called(root)


def evidence(root: LogFailure, reading: LogReading, reason: NumberedLine | None) -> str:
    """What other lines say about a known error: the reason that the system gives, if that is known."""
    return _says(reason or line_near(root, reading)) or called(root)


def _says(line: NumberedLine | None) -> str:
    return "" if line is None else f"line {line.number:,} says: {line.text.strip()[:_MAX_SAID]}"


def printed_text(root: LogFailure, reading: LogReading) -> str:
    """The lines that the program printed before, each with its number."""
    return "\n".join(f"line {line.number:,}: {line.text.strip()[:_MAX_SAID]}" for line in printed_before(root, reading))


def called(root: LogFailure) -> str:
    """Where the user's own code calls the function that failed, with which values."""
    caller = root.raised.caller
    if caller is None or root.name == "KeyboardInterrupt":
        return ""
    return f"from {short_path(caller.file)}:{caller.line}: {caller.code[:_MAX_SAID]}"


def _above(root: LogFailure) -> list[NumberedLine]:
    first = root.first_line or root.line
    above = (line for line in root.around if line.number < first and line.text.strip())
    return [line for line in above if not line.text.startswith((DIRECT, DURING))]


def line_near(root: LogFailure, reading: LogReading) -> NumberedLine | None:
    """The last line above a failure that says what went wrong: directly above it, or about the same."""
    if root.name == "KeyboardInterrupt":
        return None
    echoes, above = {item.line for item in reading.open if item.is_echo}, _above(root)
    why = (line for line in above if line.number not in echoes and signs.says_why(line.text, root.text))
    said = [line for line in why if line in above[-_LINES_OF_VALUE:] or is_about(root, line.text)][-1:]
    other = EXCEPTION.match(said[0].text) if said and not root.is_linked else None
    is_other = other is not None and other[1] != "Error"  # an exception to which this one is not linked
    return said[0] if said and not is_other else None


def _value_near(root: LogFailure) -> NumberedLine | None:
    """What the program printed just above an exception that no entry has, with a value of the line that failed."""
    above = _above(root)[-_LINES_OF_VALUE:] if root.raised.has_traceback else []
    printed = (line for line in reversed(above) if has_sign("printed value", line.text))
    said = (line for line in printed if not (signs.progress(line.text) or has_sign("exception", line.text.lower())))
    new = (line for line in said if root.raised.first_words not in line.text)
    return next((line for line in new if is_about(root, line.text, _WORDS_OF_VALUE)), None)


def printed_before(root: LogFailure, reading: LogReading) -> list[NumberedLine]:
    """What the program printed before a failure about the same sizes or settings, such as the size of a vocabulary.

    Of lines that only differ in their numbers, it is the last one; and the first one too if values grow in them.
    """
    frames = (root.raised.asking, root.raised.raising)
    said = "\n".join((root.text[:MAX_TEXT], *(frame.marked for frame in frames if frame)))
    forms = {
        row[2]: bool(row[1])
        for row in map(_ROW.split, table("gpumon.errors", "subjects"))
        if lazy_pattern(row[0]).search(said)
    }
    numbers = _numbers(root.raised.first_words) if root.is_raised else set()
    is_index, highest = has_sign("out of range", root.text), max(numbers, default=0)
    files = set(_FILE.findall(root.raised.first_words))
    known = {notice.line for notice in reading.notices} | {item.line for item in reading.open}
    lines = {line.number: line for line in (*reading.before, *reading.start)}
    counts = Counter(_shape(line.text) for line in lines.values())
    graded: dict[str, tuple[int, list[NumberedLine]]] = {}
    for number in sorted(number for number in lines if number < (root.first_line or root.line) and number not in known):
        text, shape = lines[number].text, _shape(lines[number].text)
        found = {form: list(lazy_pattern(form).finditer(text)) for form in forms}
        starts = [match.start() for matches in found.values() for match in matches]
        words = sum(min(_MAX_WORDS, len({match[0].lower() for match in matches})) for matches in found.values())
        grows = any(forms[form] for form, matches in found.items() if matches)
        is_progress = signs.progress(text) is not None and (counts[shape] > 1 or has_sign("work", text.lower()))
        is_other = has_sign("no setting", text) or text.strip() in root.text or (is_progress and not grows)
        same_files = files.intersection(_FILE.findall(text))
        if not is_other and (same_files or _DIGIT.search(text)):
            own = _numbers(text)
            shared = (size >= _RARE_NUMBER or bool(starts) or is_index or len(text) < _SHORT for size in numbers & own)
            grade = words + len(same_files) + sum(shared)
            grade += is_index and any(highest < size <= _MAX_ABOVE * highest for size in own)
            line = NumberedLine(number, _part(text, min(starts, default=0)))
            grade = 2 * grade - (counts[shape] > 1)
            before, same = graded.get(shape, (grade, []))
            if grade >= before:
                graded[shape] = grade, [*same[:grows], line]
    best = sorted((item for item in graded.values() if item[0] > 0), key=_order)
    return sorted(chain.from_iterable(same for _, same in best[:_MAX_PRINTED]))


def _order(graded: tuple[int, list[NumberedLine]]) -> tuple[int, bool, int]:
    """The most similar line first, then a short one, then the last one."""
    grade, same = graded
    return -grade, len(same[-1].text) > _MAX_SAID // 2, -same[-1].number


def values_of_place(root: LogFailure) -> dict[str, str]:
    """What fixes may name beyond the message: the user's line, the values in it, and the package that raised it."""
    frame, operands, said = root.frame, root.operands, root.raised.first_words[:MAX_TEXT].rstrip(".")
    named = {
        "at": f" at {short_path(frame.file)}:{frame.line}" if frame is not None and frame.is_own else "",
        "raising_line": "" if root.raised.raising is None else root.raised.raising.code,
        "code_line": "" if frame is None else frame.code,
        "marked": "" if root.raised.asking is None else root.raised.asking.marked,
        "operands": Code(f"[{', '.join(operands)}]") if operands else "",
        "operand": Code(operands[0]) if len(operands) == 1 else "",
        "raiser": "" if root.raised.raising is None else short_path(root.raised.raising.file),
        "installed": Code(package_of(root.raised.package)),
        "started": Code(root.raised.script),
        "used_port": next(iter(_PORT.findall("" if frame is None else frame.code)), ""),
        "evaluates": root.raised.evaluates,
        "said": f": {said}" if "\n" in root.raised.message and has_sign("framed", root.raised.message) else "",
    }
    return {name: value for name, value in named.items() if value} | path_values(root.raised.first_words, frame)


def printed_values(root: LogFailure, reading: LogReading) -> dict[str, str]:
    """What fixes may ask of these lines: their text, and the size of memory that grew from one to another."""
    lines = printed_before(root, reading)
    pairs = ((one, other) for one, other in pairwise(lines) if _shape(one.text) == _shape(other.text))
    sizes = ((_SIZE.search(one.text), _SIZE.search(other.text)) for one, other in pairs)
    grown = (f"{one[0]} to {other[0]}" for one, other in sizes if one and other and _has_grown(one, other))
    values = {"printed": "\n".join(line.text for line in lines)}
    values["grown"] = next(grown, "")
    return {name: value for name, value in values.items() if value}


def _has_grown(one: re.Match[str], other: re.Match[str]) -> bool:
    return one[2] == other[2] and float(other[1]) > _MIN_GROWTH * float(one[1])


def _shape(text: str) -> str:
    return text.translate(NO_DIGITS)


def _part(text: str, start: int) -> str:
    """The part of a long line, such as one with all arguments, that is about the same."""
    return text if start <= _MAX_SAID // 2 else f"… {text[start - _MAX_SAID // 4 :].partition(' ')[2]}"


def _numbers(text: str) -> set[int]:
    found = (int(number.replace(",", "")) for number in _NUMBER.findall(text))
    return {number for number in found if number >= _MIN_NUMBER}
