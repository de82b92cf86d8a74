"""What a log shows about a failure beyond its message: its place, and the lines near it."""

from typing import Final

from gpumon.errors import signs
from gpumon.errors.advice import short_path
from gpumon.errors.entry import Code
from gpumon.errors.facts.packages import package_of
from gpumon.errors.facts.paths import path_values
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.raised import DIRECT, DURING, EXCEPTION, MAX_TEXT
from gpumon.errors.reading import LogFailure, LogReading, NumberedLine
from gpumon.errors.relations import is_about
from gpumon.errors.signs import has_sign

_MAX_SAID: Final = 200
_LINES_OF_VALUE: Final = 3
_PORT: Final = lazy_pattern(r"(?:, |[Pp]ort ?= ?|:)([1-9]\d{3,4})\b")


def said_near(root: LogFailure, reading: LogReading) -> str:
    """What stands above an error that no entry has and may be its reason, or what a test that failed had caught."""
    if root.is_of_tests:
        raised = (item for item in reading.open if item.is_raised and not item.is_of_tests)
        return _says(next((NumberedLine(item.line, item.text) for item in raised if item.line > root.line), None))
    return _says(_line_near(root, reading)) or _called(root)


def evidence(root: LogFailure, reading: LogReading, reason: NumberedLine | None) -> str:
    """What other lines say about a known error: the reason that the system gives, if that is known."""
    return _says(reason or _line_near(root, reading)) or _called(root)


def _says(line: NumberedLine | None) -> str:
    return "" if line is None else f"line {line.number:,} says: {line.text.strip()[:_MAX_SAID]}"


def _called(root: LogFailure) -> str:
    """Where the user's own code calls the function that failed, with which values."""
    caller = root.raised.caller
    if caller is None or root.name == "KeyboardInterrupt":
        return ""
    return f"from {short_path(caller.file)}:{caller.line}: {caller.code[:_MAX_SAID]}"


def _above(root: LogFailure) -> list[NumberedLine]:
    first = root.first_line or root.line
    around = root.around if root.is_raised else [line._replace(text=line.text.strip()) for line in root.around]
    above = (line for line in around if line.number < first and line.text.strip())
    return [line for line in above if not line.text.startswith((DIRECT, DURING))]


def _line_near(root: LogFailure, reading: LogReading) -> NumberedLine | None:
    """The last line above a failure that says what went wrong: directly above it, or about the same."""
    if root.name == "KeyboardInterrupt":
        return None
    echoes, above = {item.line for item in reading.open if item.is_echo}, _above(root)
    why = (line for line in above if line.number not in echoes and signs.says_why(line.text, root.text))
    is_told = root.is_echo and not root.is_raised  # such as that a build failed: its output has the reason
    said = [line for line in why if is_told or line in above[-_LINES_OF_VALUE:] or is_about(root, line.text)][-1:]
    if said and not (root.is_raised or root.match) and has_sign("error level", said[0].text):  # the first one led to it
        said = [line for line in above if has_sign("error level", line.text)]
    other = EXCEPTION.match(said[0].text) if said and not root.is_linked else None
    is_other = other is not None and other[1] != "Error"  # an exception to which this one is not linked
    return said[0] if said and not is_other else None


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
