"""What to do about an error that no entry has: what its message says, and what its class, place and values suggest."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from gpumon.core.text_table import table
from gpumon.errors.entry import EXAMPLE_SCRIPT, Code
from gpumon.errors.facts.packages import package_of
from gpumon.errors.facts.paths import parent_of, path_values
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.raised import NOT_RAISED, TracebackFrame
from gpumon.errors.reading import LogFailure, Notice
from gpumon.errors.signs import has_sign, is_reported_error

_SENTENCE: Final = lazy_pattern(r"(?<=[.!?])\s+(?=[A-Z`'\"(])|\n+")
_REST: Final = lazy_pattern(r"[\"'], ['\"]\w+['\"]: .*$")
"""The further fields of an answer of a server, such as its code, behind the message."""
_MAX_QUOTE: Final = 240
_ROW: Final = lazy_pattern(
    r"(?P<name>\S+)(?: @ (?P<file>\S+))?(?: ~ (?P<code>.+?))?(?: / (?P<message>.+?))? => (?P<advice>.+)"
)
_VALUE: Final = lazy_pattern(r"\{(\w+)(!r)?\}")
_MODULE: Final = lazy_pattern(r"(?:No module named|module) '?(?P<module>\w{1,100})")
_OPENED: Final = lazy_pattern(r"['\"]([\w./~-]{1,200}\.[A-Za-z]\w{0,7})['\"]")
_WORDS: Final = lazy_pattern(r"(?:\b[A-Za-z]?[a-z]+ ){2,7}[a-z]+\b")
_COMMENT: Final = lazy_pattern(r"\s#\s.*$")
_FIRST_ELEMENT: Final = lazy_pattern(r"([A-Za-z_][\w.]*)\[0\]")
_ATTRIBUTE: Final = lazy_pattern(r"has no attribute '(\w{1,100})'")
_PRINTED: Final = {
    "warned": lazy_pattern(r"line ([\d,]+): .*RuntimeWarning"),
    "nothing": lazy_pattern(r"line ([\d,]+): .*(?<![\w.:])0 [a-z]|line ([\d,]+): .*[=:] ?0\.?(?:$|\n)"),
}
"""What the lines that the program printed before show."""
_FAILED_TEST: Final = lazy_pattern(r"(?P<test>[^\s,]+\.py::[^\s,]+)(?: - (?P<reason>.+))?")
_COMMAND: Final = lazy_pattern(r"\b(?:fault|error|Aborted|instruction|exception)(?: \(core dumped\))? +(\S.*)")
_STARTS_PYTHON: Final = lazy_pattern(r"python|torchrun|srun")
_MIN_MESSAGE: Final = 8
"""Characters of a message that another line repeats."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to do."""

    text: str
    code: str = ""


def own_words(message: str) -> str:
    """What a message itself says about what to do; empty if it says nothing, or only how to debug."""
    texts = (_REST.sub("", " ".join(sentence.split())) for sentence in _SENTENCE.split(message))
    instructions = [text for text in texts if has_sign("instruction", text) and not has_sign("boilerplate", text)]
    # what the message gives as a hint, and what holds in any case, first
    return min(instructions, key=lambda text: (not has_sign("hint", text), text.startswith("If ")), default="")


def short_path(path: str) -> str:
    """The end of a path, which says which file is meant."""
    parts = re.split(r"[\\/]", path)
    return "/".join(parts[-2:]) if len(parts) > 2 and not path.startswith("./") else path


def steps_without_entry(
    root: LogFailure, ignored: Sequence[Notice], quoted: Sequence[Advice], printed: str
) -> list[Advice]:
    """What to do about an error that no entry has, best first, with what its message says to do.

    Args:
        root: The error.
        ignored: The notices of the run.
        quoted: What its message says to do.
        printed: Lines about the same that the program printed before, with their numbers; may be empty.
    """
    if root.ended is not None:
        crashed = _COMMAND.search(root.text)
        if crashed is not None and _STARTS_PYTHON.search(crashed[1]) is None:
            return [*quoted, Advice(f"Run the command that crashed alone, with a debugger: {crashed[1][:_MAX_QUOTE]}")]
        return [*quoted, _filled(exit_meaning(root.ended.code)[1], {})]
    if not root.is_raised:
        return [*quoted, _of_report(root, ignored, printed)]
    advice, values, is_exact = _row(root, printed)
    return [_filled(advice, values), *quoted] if is_exact else [*quoted, _filled(advice, values)]


def _of_report(root: LogFailure, ignored: Sequence[Notice], printed: str) -> Advice:
    """What to do about the error of a compiler, an installer, a scheduler, a test or a command line."""
    titles = (*(line.text for line in root.around), *(notice.title for notice in ignored))
    tests = (match.groupdict("") for text in titles if (match := _FAILED_TEST.search(text)) is not None)
    known = {"line": str(root.line), **next(tests, {})}
    for row in table("gpumon.errors", "reports"):
        form, _, advice = row.partition(" => ")
        match = lazy_pattern(form).search(root.text)
        if match is not None and _has_all(advice, values := known | match.groupdict()):
            return _filled(advice, values)
    why = (
        line.text for line in reversed(root.around) if line.number < root.line and has_sign("system reason", line.text)
    )
    raised = next(filter(None, (_with_class(replace(root, text=text)) for text in (root.text, *why))), None)
    if raised is not None:
        return _filled(*_row(raised, printed)[:2])
    said = _WORDS.search(root.text)
    first = next((notice for notice in ignored if notice.match is None and has_sign("error word", notice.title)), None)
    if first is not None:
        return Advice(f"Correct what line {first.line:,} reports, the first error: {first.title.strip()[:_MAX_QUOTE]}")
    if printed:
        return Advice(f"Begin with {printed.splitlines()[0][:_MAX_QUOTE]}")
    if said is not None and not (is_reported_error(root.text) or has_sign("installer", root.text)):
        text = "Find the place in the program that ends it with this message, and the condition that it has there."
        return Advice(text, f"grep -rn --include='*.py' {shlex.quote(said[0].strip())} .")
    return Advice(f"Read line {root.line:,} and the lines above it: the first one that reports an error is the cause.")


def _with_class(root: LogFailure) -> LogFailure | None:
    """A line with the message of an exception that the program caught, as that exception; None if it has none."""
    for row in table("gpumon.errors", "classes"):
        name, _, form = row.partition(" / ")
        said = lazy_pattern(form).search(root.text)
        if said is not None:
            return replace(root, raised=NOT_RAISED._replace(name=name, message=root.text[said.start() :]))
    return None


def _repeated(root: LogFailure, message: str) -> str:
    """A line next to an exception that repeats its message and says more, such as which files are missing."""
    text = message.rstrip(".!")
    near = (line.text for line in root.around if len(text) >= _MIN_MESSAGE and text in line.text)
    others = (line for line in near if not line[:1].isspace() and not line.endswith(message))
    return next(others, "")


def _values(root: LogFailure) -> dict[str, str]:
    """What a row of `exceptions.txt` can name."""
    raised, frame, message = root.raised, root.frame, root.raised.first_words
    if frame is not None and frame.is_own and frame.code.startswith("raise "):
        message = _repeated(root, message) or message
    place = "that place" if root.is_raised else f"the code that writes line {root.line:,}"
    place = place if frame is None else f"{short_path(frame.file)}:{frame.line}"
    if frame is not None and not frame.is_own and frame.function.isidentifier():
        place = f"the call of {frame.function}"
    code = ""
    if frame is not None:
        is_whole = frame.code.startswith("assert ") or message.endswith(" to unpack") or " to unpack (" in message
        code = _COMMENT.sub("", frame.code if is_whole else frame.marked or frame.code)
    values = {"place": place, "code": code, "message": message, "package": raised.package}
    values["script"] = raised.script
    opened = _OPENED.findall(code)
    values["opened"] = opened[0] if len(opened) == 1 else ""
    values["operands"] = Code(", ".join(root.operands))
    raising = raised.raising or TracebackFrame("", 0, "", "", is_own=False)
    values["function"] = raising.function if raising.function.isidentifier() else ""
    values["raiser"] = f"{short_path(raising.file)}:{raising.line}" if raising.line and raising != frame else ""
    taken = _FIRST_ELEMENT.search(raising.marked)
    values["emptied"] = taken[1] if taken is not None else ""
    values["asserted"] = raising.code.removeprefix("assert ") if raising.code.startswith("assert ") else ""
    is_given = raised.name == "ModuleNotFoundError" and raised.package not in message  # such as the name of an app
    values["broken"] = raised.package if raised.frame is None and not is_given else ""
    attribute = _ATTRIBUTE.search(message)
    if attribute is not None:
        owner = re.search(rf"([A-Za-z_][\w.]*)\.{attribute[1]}\b", code)
        values["object"] = "" if owner is None else owner[1]
        values["called"] = attribute[1] if f".{attribute[1]}(" in code else ""
        values["method" if f"{attribute[1]}(" in code else "member"] = (
            attribute[1] if values["object"] == "self" else ""
        )
    return values | path_values(message, frame) | _module_values(message, frame)


def _module_values(message: str, frame: TracebackFrame | None) -> dict[str, str]:
    """The package of a missing module, or whether it is the user's own, and in which folder: `inside` is certain."""
    match = _MODULE.match(message)
    if match is None:
        return {}
    module, known = match["module"], {"known": package_of(match["module"])}
    if frame is None or not frame.is_own:
        return known
    file = frame.file.replace("\\", "/")
    above, has_folder, _ = file.removeprefix("./").rpartition("/")
    folders = above.split("/")
    if has_folder and module in folders:
        inside = "/".join(folders[: folders.index(module)])
        return known | {"inside": module, "root": inside or "."}
    is_dotted = re.match(rf"(?:from|import) {module}\.", frame.code) is not None
    is_package = bool(known["known"]) and message.startswith("No module named")
    if is_package or not (is_dotted or has_sign("own module", module)):
        return known
    return known | {"own": module, "root": above.rpartition("/")[0] or "." if has_folder else ".."}


def _row(root: LogFailure, printed: str) -> tuple[str, Mapping[str, str], bool]:
    """The first advice about an exception from this place; all values; whether it is for its class and message."""
    shown = {name: match for name, form in _PRINTED.items() if (match := form.search(printed)) is not None}
    raised, values = root.raised, _values(root) | {name: match[match.lastindex or 0] for name, match in shown.items()}
    message = raised.message if values["message"] in raised.message.replace("\n", " ") else values["message"]
    name, file = raised.class_name, "" if raised.raising is None else raised.raising.file
    words, is_open = f"{message}\n{values['code']}".lower(), True
    for line in table("gpumon.errors", "exceptions"):
        head, _, rest = line.partition(" ")
        if head == "?":
            is_open = not rest or any(word.replace("_", " ") in words for word in rest.split())
        if not is_open or (head.strip("*") and not name.endswith(tuple(head.split("|")))):
            continue
        row = _ROW.fullmatch(line)
        assert row is not None, line
        if row["file"] and not any(part in file for part in row["file"].split("|")):
            continue
        pairs = ((row["code"], values["code"]), (row["message"], message))
        matches = [lazy_pattern(form).search(text) for form, text in pairs if form]
        groups = chain.from_iterable(match.groupdict().items() for match in matches if match is not None)
        captured = {key: text for key, text in groups if text}
        captured |= {"parent": parent_of(captured["path"])} if "path" in captured else {}
        is_of_library = has_sign("library", captured.get("file", ""))
        if all(matches) and not is_of_library and _has_all(row["advice"], values | captured):
            return row["advice"], values | captured, head != "*" and len(row["message"] or "") > 2
    return "", values, False


def _has_all(advice: str, values: Mapping[str, str]) -> bool:
    """Whether all values that an advice names are known."""
    return all(values.get(name) for name, _ in _VALUE.findall(advice))


def _filled(text: str, values: Mapping[str, str]) -> Advice:
    """Advice of a table: a sentence, in which values are filled in, and perhaps code; ``!r`` makes a text of Python."""
    sentence, _, code = text.replace(EXAMPLE_SCRIPT, values.get("script") or EXAMPLE_SCRIPT).partition(" | ")
    paths = {name: short_path(value) if name == "file" else value for name, value in values.items()}
    filled = _VALUE.sub(lambda match: paths[match[1]], sentence)
    return Advice(filled, _VALUE.sub(lambda match: _in_code(values[match[1]], is_python=bool(match[2])), code))


def _in_code(value: str, *, is_python: bool) -> str:
    return value if isinstance(value, Code) else (repr if is_python else shlex.quote)(value)


def exit_meaning(code: int) -> tuple[str, str]:
    """What an exit code or a signal means, and what to do."""
    rows = (row.split(": ", 2) for row in table("gpumon.errors", "exits"))
    ended = f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
    default = ended, "Read the lines above it: the program ended itself with this code, and may say why."
    return next(((meaning, advice) for name, meaning, advice in rows if name == str(code)), default)
