"""An exception in a log, as a record, and how its frames and its message are read."""

import re
from collections.abc import Sequence
from enum import Enum, auto
from functools import lru_cache
from itertools import takewhile
from keyword import iskeyword
from typing import Final, NamedTuple

from gpumon.core.text import safe_text
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.scan import RankLines
from gpumon.errors.signs import has_sign, is_reported_error, progress, sign, starts

TRACEBACK: Final = "Traceback (most recent call last)"
MODEL_CODE: Final = "transformers_modules"
"""The package in which transformers keeps code that came with a model."""

MAX_TEXT: Final = 400
MAX_TRACEBACK_LINES: Final = 400
MAX_MESSAGE_LINES: Final = 24
LINES_ABOVE: Final = 40
_COMMON_HEADS: Final = frozenset({"", "The", "This", "If", "You", "Please", "To", "It", "For", "A", "In", "File"})

_TARGET: Final = lazy_pattern(r"^(?:[^=(\"']{1,100} = |for .{1,100}? in )")
_SUBSCRIPT: Final = r"(?:\[[\w'\":, .+-]{1,30}\])*"
_VALUE: Final = lazy_pattern(
    r"#.*|[rbfRBF]?(['\"]).*?(?:\1|$)|(?<![\w.)\]])"
    rf"([A-Za-z_][\w.]*{_SUBSCRIPT}(?![\w.(\['\"]|\s*=(?!=))|[A-Za-z_][\w.]*{_SUBSCRIPT}(?=\.(?!backward\()[A-Za-z_]\w*\())"
)
_MAX_OPERANDS: Final = 4
_MARK: Final = lazy_pattern(r"\s*([~^]+)\s*")
NO_DIGITS: Final = str.maketrans("", "", "0123456789")
_SCRIPT: Final = lazy_pattern(r"[\w.-]{1,60}\.py")


class Link(Enum):
    """How an exception belongs to the one above it in the log."""

    NONE = auto()
    DIRECT = auto()
    """Raised from it: ``raise B from A``."""
    DURING = auto()
    """Raised while it was handled."""
    INNER = auto()
    """It is contained in the message of that one, which repeats it: a worker process raised it."""


class TracebackFrame(NamedTuple):
    """A frame of a traceback.

    Attributes:
        is_own: Whether the file is outside Python and the installed packages.
        marked: The part of the code that Python has underlined, or else all of it.
    """

    file: str
    line: int
    function: str
    code: str
    is_own: bool
    marked: str = ""

    @property
    def operands(self) -> list[str]:
        """The first names of values in its line of code, without those of functions, modules and parameters."""
        names = (match[2] for match in _VALUE.finditer(_TARGET.sub("", self.marked)) if match[2])
        values = (name for name in names if not iskeyword(name) and not has_sign("no value", name))
        return list(dict.fromkeys(values))[:_MAX_OPERANDS]


class Raised(NamedTuple):
    """An exception in a log.

    Attributes:
        message: Its message, without the class; several lines are separated by line ends.
        row: The index of its last line, with the class, in the lines by rank.
        first_row: The index of the first line of its traceback.
        end_row: The index behind its message.
        frame: The innermost frame in the user's own code, apart from one that only checks values.
        entry: The outermost frame.
        caller: The frame in the user's own code that passes values to that one, whose values may be wrong.
        evaluates: The function in which the program evaluates, rather than trains; empty if unknown.
        asking: The innermost frame outside PyTorch and Python, if that asks by itself for what failed.
        is_uncaught: Whether it ended its thread or process, as far as its form shows.
        is_of_script: Whether the outermost frame is the script that was started, in the user's own code.
        is_caught: Whether a server, a thread or Python itself says that it caught the exception and goes on.
        is_of_test: Whether a program that runs tests reports it.
    """

    name: str
    message: str
    row: int
    first_row: int
    end_row: int
    frame: TracebackFrame | None = None
    raising: TracebackFrame | None = None
    asking: TracebackFrame | None = None
    entry: TracebackFrame | None = None
    link: Link = Link.NONE
    is_uncaught: bool = False
    is_of_script: bool = False
    has_traceback: bool = False
    is_caught: bool = False
    is_of_test: bool = False
    caller: TracebackFrame | None = None
    evaluates: str = ""

    @property
    def package(self) -> str:
        """The installed package whose code raised it, on its own or through PyTorch; empty if none did."""
        match = None if self.asking is None else _PACKAGE.search(self.asking.file)
        return "" if match is None else match[1]

    @property
    def class_name(self) -> str:
        """The class, without its module."""
        return self.name.rpartition(".")[2]

    @property
    def is_of_import(self) -> bool:
        """Whether the script that was started could not import a module, so that it had done nothing yet."""
        code = "" if self.entry is None else self.entry.code
        return self.is_of_script and code.startswith(("import ", "from "))

    @property
    def script(self) -> str:
        """The file that was started, without its folder; empty if unknown."""
        name = re.split(r"[\\/]", self.entry.file)[-1] if self.entry is not None and self.is_of_script else ""
        return name if _SCRIPT.fullmatch(name) else ""

    @property
    def first_words(self) -> str:
        """The first line of the message, with the next one if it only announces that, such as how many were found."""
        first, *more = self.message.split("\n")
        if has_sign("framed", first):
            head, is_build, _ = first.partition(": [")
            said = next(filter(is_reported_error, more), (more or [first])[0])
            return f"{head}: {said}" if is_build else said
        if has_sign("quotes source", first) and more:
            return f"{first} {more[-1].strip()}"
        announces = first.endswith((":", " found.")) or has_sign("validation", first)
        return " ".join([first, *map(str.strip, more[:1])]) if announces else first


NOT_RAISED: Final = Raised("", "", 0, 0, 0)
"""What stands for the exception of a failure that is none."""
CLASS: Final = (
    r"(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*)?(?:Error|Exception|Interrupt|SystemExit|Timeout|TimeoutExpired|Failure|OutOfMemory"
    r"|NotFound|Unsupported|Violation)"
)
EXCEPTION: Final = lazy_pattern(rf"(?:E {{3,7}}|Error: )?({CLASS})(?::\s|:?$)")
FRAME: Final = sign("frame").pattern
CELL: Final = lazy_pattern(
    r"File \S{1,300}:\d|Cell In|Input In \[|-{2,}> \d|\S{1,200}(?:\.py|>) in [\w<>.?]{1,100}(?:\(.*)?$"
    r"|[/\\]\S.{0,200}\.ipynb \w+ \d{1,5} (?:line|in) "
)
"""A line that IPython writes at the left margin of a traceback."""
_ARROW: Final = lazy_pattern(r"-+> (?:<a href='vscode-notebook-cell[^>]{1,600}>)?(\d{1,7})(?:</a>)? (.*)")
_LINES_TO_ARROW: Final = 12
_PACKAGE: Final = lazy_pattern(r"(?:(?:site|dist)-packages|modules(?=[\\/]transformers_modules))[\\/](\w{1,80})[\\/.]")
_FORWARDS: Final = lazy_pattern(r"\(\*\w+, \*\*\w+\)")
"""A call with just what a function was called with, such as that of a wrapper."""
DIRECT: Final = "The above exception was the direct cause"
DURING: Final = "During handling of the above exception"
_CONTINUATIONS: Final = (
    "All the data files",
    "Compile with",
    "For debugging",
    "If you",
    "Please",
    "Did you",
    "To fix",
    "what():",
)
"""How a message goes on behind a blank line, as those of PyTorch and of the Hugging Face libraries do."""


def message_at(rows: RankLines, row: int, start: int, first_row: int) -> tuple[str, int]:
    """The message of an exception, which may have several lines, and the row behind it.

    What the program prints after it is no part of it: a line that starts like one above the traceback, or progress.
    """
    rank = rows.of_rank(row)
    above = rows.texts[max(rank.start, first_row - LINES_ABOVE) : first_row]
    heads = {text.partition(" ")[0] for text in above} - _COMMON_HEADS
    parts = [rows.texts[row].strip()[start:].strip()]
    if not parts[0]:
        heads.clear()  # the lines below are the message, even if a supervisor printed it before
    is_framed = has_sign("framed", parts[0])
    stop = min(rank.stop, row + (MAX_TRACEBACK_LINES if is_framed else MAX_MESSAGE_LINES))
    end, prefix = row + 1, _prefix(rows, row)
    for other in range(row + 1, stop):
        text = rows.texts[other].strip()
        inner = EXCEPTION.match(text)
        if is_framed and inner is not None and rows.lines[other][:1].isspace():
            parts.append(text[inner.end() :])
            end = other + 1
            break
        if TRACEBACK in text or text.startswith((DIRECT, DURING)) or inner is not None:
            break
        if is_framed and (has_sign("frame of message", text) or rows.lines[other].startswith("    ")):
            end = other + 1
            continue
        if not text and (other + 1 >= stop or not rows.texts[other + 1].strip().startswith(_CONTINUATIONS)):
            break
        if text.partition(" ")[0] in heads or progress(text) or has_sign("warning", rows.lines[other]):
            break
        if prefix != _prefix(rows, other) or sign("not message").pattern.match(text) or starts(text):
            break
        parts.append(text)
        end = other + 1
    return "\n".join(safe_text(part, MAX_TEXT * 8) for part in parts if part)[: MAX_TEXT * 8], end


def _prefix(rows: RankLines, row: int) -> str:
    """What stands before a line, apart from the digits: lines of one message share it."""
    return rows.lines[row][: len(rows.lines[row]) - len(rows.texts[row])].strip().translate(NO_DIGITS)


def frame_at(stripped: str, rows: RankLines, row: int, base: int) -> TracebackFrame | None:
    """The frame that a line without its margin names, with its line of code."""
    if FRAME.search(stripped) is None:
        return None
    stop = rows.of_rank(row).stop
    under = tuple(line[base:] for line in rows.lines[row + 1 : min(row + 3, stop)])
    code = (under[0] if base else rows.texts[row + 1]).strip() if under else ""
    below = rows.texts[row + 1 : min(row + _LINES_TO_ARROW, stop)] if CELL.match(stripped) is not None else ()
    arrow = next(filter(None, map(_ARROW.match, takewhile(str.strip, below))), None)
    return _frame(stripped, (int(arrow[1]), arrow[2].strip()) if arrow is not None else (0, code), under)


@lru_cache(4096)  # a log repeats its tracebacks
def _frame(stripped: str, shown: tuple[int, str], under: tuple[str, ...]) -> TracebackFrame:
    """The frame that a line names.

    Args:
        stripped: The line.
        shown: The line of code, and its number unless the frame names it.
        under: The two lines below it, as far as there are any, which may have the code and a mark of its part.
    """
    match = FRAME.search(stripped)
    assert match is not None
    file, *rest = filter(None, match.groups())
    line, functions = (int(rest[0]), rest[1:]) if rest and rest[0].isdigit() else (0, rest)
    number, code = shown
    is_code = (
        code
        and FRAME.search(code) is None
        and EXCEPTION.match(code) is None
        and code[0] not in "^~│╭╰"
        and not code.startswith("_ _")
    )
    mark = _MARK.fullmatch(under[1]) if is_code and len(under) > 1 else None
    return TracebackFrame(
        safe_text(file, MAX_TEXT),
        number or line,
        safe_text("".join(functions).rstrip(","), MAX_TEXT),
        safe_text(code, MAX_TEXT) if is_code else "",
        not has_sign("library", file),
        safe_text(under[0][slice(*mark.span(1))].strip() if mark else code, MAX_TEXT) if is_code else "",
    )


def own_frame(frames: Sequence[TracebackFrame]) -> TracebackFrame | None:
    """The innermost frame in the user's own code, or its caller if it only checks values and refuses them."""
    own = [frame for frame in frames if frame.is_own]
    is_check = bool(own) and own[-1].code.startswith(("raise ", "assert ")) and has_sign("check", own[-1].function)
    return own[-1 - (is_check and len(own) > 1)] if own else None


def calling_frame(frames: Sequence[TracebackFrame], frame: TracebackFrame | None) -> TracebackFrame | None:
    """The frame in the user's own code that calls one with values."""
    own = [other for other in frames if other.is_own]
    inner = own.index(frame) if frame in own else 0
    outer = [other for other in own[:inner] if other[:2] != own[inner][:2]]  # a comprehension is at the same line
    return outer[-1] if outer and has_sign("passes values", outer[-1].code) else None


def asking_frame(frames: Sequence[TracebackFrame]) -> TracebackFrame | None:
    """The innermost frame outside PyTorch and Python that asks by itself for what failed."""
    for frame in reversed(frames):
        match = _PACKAGE.search(frame.file)
        package = "" if match is None else match[1]
        is_passed_on = package in {"", "torch", "tqdm"} or "__getattr" in frame.function or _FORWARDS.search(frame.code)
        if frame.is_own or not is_passed_on:
            return frame
    return None
