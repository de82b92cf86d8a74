"""Reads the exceptions of a block of a log: tracebacks of Python, what ``terminate`` prints for C++, and bare messages.

A traceback is read per rank, so that those of several ranks may be interleaved. An exception that was raised from
another one, or that repeats one of a worker process, keeps its link to it.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from itertools import accumulate
from typing import Final, NamedTuple

from gpumon.core.text import safe_text
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.scan import LogBlock, RankLines
from gpumon.errors.signs import has_warning_level, progress

TRACEBACK: Final = "Traceback (most recent call last)"
_MAX_TEXT: Final = 400
_MAX_TRACEBACK_LINES: Final = 400
_MAX_MESSAGE_LINES: Final = 24
_LINES_ABOVE: Final = 40
_LINES_OF_PLACE: Final = 4
_MAX_STACK_LINES: Final = 100
_COMMON_HEADS: Final = frozenset({"", "The", "This", "If", "You", "Please", "To", "It", "For", "A", "In", "File"})
_MAX_FOREIGN_LINES: Final = 6
"""Lines of other streams that may stand between two lines of a traceback."""
_MAX_EXCEPTIONS: Final = 512
"""Exceptions per block that are read: the first and the last ones, half of each."""


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
        file: The file, or the cell of a notebook.
        line: The number of the line in it.
        function: The function, or empty.
        code: The line, or empty.
        is_own: Whether the file is outside Python and the installed packages.
    """

    file: str
    line: int
    function: str
    code: str
    is_own: bool


class Raised(NamedTuple):
    """An exception in a log.

    Attributes:
        name: Its class.
        message: Its message, without the class; several lines are separated by line ends.
        row: The index of its last line, with the class, in the lines by rank.
        first_row: The index of the first line of its traceback.
        end_row: The index behind its message.
        frame: The innermost frame in the user's own code.
        raising: The innermost frame.
        package: The installed package whose code raised it, on its own or through PyTorch; empty if none did.
        link: How it belongs to the exception before it.
        is_uncaught: Whether it ended its thread or process, as far as its form shows.
        has_traceback: Whether it stands below a traceback.
        is_caught: Whether a server, a thread or Python itself says that it caught the exception and goes on.
    """

    name: str
    message: str
    row: int
    first_row: int
    end_row: int
    frame: TracebackFrame | None = None
    raising: TracebackFrame | None = None
    package: str = ""
    link: Link = Link.NONE
    is_uncaught: bool = False
    has_traceback: bool = False
    is_caught: bool = False


_WORDS: Final = (
    *(b"error", b"exception", b"interrupt", b"traceback", b"timeout", b"terminate", b"panic", b"systemexit"),
    *(b"failure", b"outofmemory", b"notfound", b"unsupported", b"violation"),
)
"""Parts of words without which a block has no exception."""
_CLASS: Final = (
    r"(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*)?(?:Error|Exception|Interrupt|SystemExit|Timeout|TimeoutExpired|Failure|OutOfMemory"
    r"|NotFound|Unsupported|Violation)"
)
_EXCEPTION: Final = lazy_pattern(rf"(?:E {{3,7}}|Error: )?({_CLASS})(?::\s|:?$)")
_WARNING: Final = lazy_pattern(r"\w*Warning: ")
_ANY_EXCEPTION: Final = lazy_pattern(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::\s|:?$)")
"""Directly below a traceback, the class of an exception may have any name."""
_BARE: Final = lazy_pattern(
    rf"^(?:(?:E {{3,7}}|[`*> ]{{1,4}})?(?P<name>(?!(?:Error|Exception|Failure|Timeout|NotFound)\b){_CLASS})(?::\s|:?$)"
    r"|terminate called (?P<thrown>after throwing an instance of '[^'\n]{1,200}'|without an active exception)"
    r"|(?P<fatal>Fatal Python error|fatal runtime error|panic): "
    r"|(?:\*\* ?|- )?(?:\*\*)?Exception Message:(?:\*\*)? |!!! Exception during processing !!! )",
    re.MULTILINE,
)
_THROWN: Final = lazy_pattern(r"after throwing an instance of '([^'\n]{1,200})'")
_WHAT: Final = lazy_pattern(r"\s*what\(\):\s*")
_IN_FRAME: Final = ('File "', "│", "|", "^", "~", "[Previous line repeated", "...", "╭", "╰", "\u2771")
_FRAME: Final = lazy_pattern(r'File "([^"]{1,300})", line (\d{1,7})(?:,? in (\S{1,100}))?')
_OTHER_FRAME: Final = lazy_pattern(
    r"(?:File (\S{1,300}?):(\d{1,7})(?:, in ([\w.]{1,100}))?|(Cell In ?\[\d+\]), line (\d+)"
    r"|[│|] (\S{1,200}\.py):(\d{1,7}) in (\S{1,100}))"
)
_LIBRARY: Final = lazy_pattern(
    r"(?:site|dist)-packages|[\\/]lib(?:64)?[\\/]python[\d.]+[\\/]|[Pp]ython\d*[\\/]lib[\\/]|[\\/]s?bin[\\/]"
    r"|^<(?!stdin|string|ipython)|^/opt/(?:pytorch|conda/lib)/|/torch/(?:nn|utils|distributed|_dynamo|optim)/"
)
_PACKAGE: Final = lazy_pattern(r"(?:(?:site|dist)-packages|modules(?=[\\/]transformers_modules))[\\/](\w{1,80})[\\/.]")
_PASSES_ON: Final = frozenset({"", "torch"})
"""Packages that pass on what they are called with; the empty name is Python's own library."""
_DIRECT: Final = "The above exception was the direct cause"
_DURING: Final = "During handling of the above exception"
_ORIGINAL: Final = lazy_pattern(r"Original Traceback|-- Process \d+ terminated with|_RemoteTraceback|RemoteTraceback")
_REPEATS: Final = lazy_pattern(r"Caught \w[\w.]* in |ProcessRaisedException|RemoteTraceback|RemoteError")
CAUGHT_ABOVE: Final = lazy_pattern(
    r"Exception ignored (?:in|while|on)\b|Error in atexit\._run_exitfuncs|Error in sys\.excepthook|Exception in thread"
    r"|some optimizations will not be enabled|--- Logging error ---|Task exception was never retrieved"
    r"|Exception in (?:ASGI|callback|worker)|Error handling request|Exception on /\S* \["
)
"""Above the traceback of an exception that does not end the program."""
_OUTERMOST: Final = lazy_pattern(
    r"^(?:<module>|_run_module_as_main|_bootstrap|_bootstrap_inner|<frozen runpy>|main|<cell line: \d+>\(?\)?)$"
)
_NOT_MESSAGE: Final = lazy_pattern(
    r"Sending process|Call stack:|Task exception was|--- Logging error|FAILED |Exception (?:in thread|ignored)"
    r"|\d+\.\d+\.\d+\.\d+ - - |[EWI]\d{4} |failed \(exitcode|wandb:|srun:|slurmstepd:|make(?:\[\d+\])?:|={8,}|-{8,}$"
    r"|NVRM:|\w+:\d+:\d+ \[\d+\] NCCL|(?:Segmentation fault|Killed|Aborted|Bus error|Terminated)\b|root@"
    r"|\S+@\S+:\S*[$#]"
)
"""What follows a message without being a part of it."""
_REPORTED: Final = lazy_pattern(r"\b(?:ERROR|WARNING|WARN|CRITICAL)\b")
_LOGGED: Final = lazy_pattern(r"\b(?:ERROR|WARNING|WARN|CRITICAL|INFO)\b")


class _Lines(NamedTuple):
    """The lines of a block by rank, as written and without prefixes."""

    block: LogBlock
    rows: RankLines

    def line(self, row: int) -> str:
        return self.block.lines[self.rows.positions[row]]

    def text(self, row: int) -> str:
        return self.rows.texts[row]


def exceptions(block: LogBlock) -> list[Raised]:
    """The exceptions of a block, in the order of its lines by rank."""
    lines = _Lines(block, block.by_rank)
    if not any(sign in block.words.vocabulary for sign in _WORDS):
        return []
    text = "\n".join(lines.rows.texts)
    headers = _rows_with(TRACEBACK, text)
    below: list[Raised] = []
    for header in headers:
        item = _below_traceback(lines, header, below[-1] if below else None)
        if item is not None:
            below.append(item)
    taken = [range(item.first_row, item.end_row) for item in below]
    return sorted((*below, *_bare_exceptions(lines, text, taken)), key=lambda item: item.row)


def _rows_with(sign: str, text: str) -> list[int]:
    """The rows of a text that contain a sign, at most a fixed number from both ends."""
    positions: list[int] = []
    start = text.find(sign)
    while start >= 0:
        positions.append(start)
        start = text.find(sign, start + 1)
    if not positions:
        return []
    half = _MAX_EXCEPTIONS // 2
    if len(positions) > _MAX_EXCEPTIONS:
        positions = positions[:half] + positions[-half:]
    return _rows_of(positions, text)


def _rows_of(positions: Sequence[int], text: str) -> list[int]:
    """The rows of positions in a text, in order and without repetition."""
    rows: list[int] = []
    row = start = 0
    for position in positions:
        row += text.count("\n", start, position)
        start = position
        if not rows or rows[-1] != row:
            rows.append(row)
    return rows


def _below_traceback(lines: _Lines, header: int, previous: Raised | None) -> Raised | None:
    """The exception at the end of a traceback: the next line that is not indented."""
    line, text = lines.line(header), lines.text(header)
    prefix = line[: len(line) - len(text)]
    base = len(prefix) if text.startswith(TRACEBACK) else len(prefix.rstrip()) + bool(prefix.strip())
    end = min(lines.rows.of_rank(header).stop, header + _MAX_TRACEBACK_LINES)
    frames: list[TracebackFrame] = []
    foreign = 0
    is_below_body = True
    for row in range(header + 1, end):
        rest = lines.line(row)[base:]
        stripped = rest.strip()
        if not stripped:
            continue
        if TRACEBACK in stripped and not stripped.startswith(_IN_FRAME):
            return None
        if rest[0].isspace() or stripped.startswith(_IN_FRAME):
            frame = _frame(stripped, lines, row, base)
            if frame is not None:
                frames.append(frame)
                foreign = 0
            is_below_body = True
            continue
        match = _EXCEPTION.match(stripped) or (_ANY_EXCEPTION.match(stripped) if is_below_body and frames else None)
        is_none = match is None or match[1].isupper() or (match[1].islower() and "." not in match[1])
        if match is None or is_none or _goes_on(lines, row, end, base):
            foreign += 1
            is_below_body = False
            if foreign > _MAX_FOREIGN_LINES:
                return None
            continue
        return _raised(lines, header, row, match, frames=frames, previous=previous)
    is_end = end == lines.rows.of_rank(header).stop and not any(
        map(str.strip, lines.block.lines[lines.rows.positions[end - 1] + 1 :])
    )
    is_cut = bool(frames) and foreign == 0 and is_end
    return _cut(header, end, frames) if is_cut else None


def _cut(header: int, end: int, frames: Sequence[TracebackFrame]) -> Raised:
    """A traceback without its last line."""
    own = next((frame for frame in reversed(frames) if frame.is_own), None)
    name, package = "Traceback without its last line", _raising_package(frames)
    return Raised(name, "", end - 1, header, end, own, frames[-1], package, has_traceback=True)


def _goes_on(lines: _Lines, row: int, end: int, base: int) -> bool:
    """Whether a traceback goes on below a line, which then is one of another stream, whatever it looks like."""
    is_warning = _WARNING.match(lines.line(row)[base:]) is not None
    for other in range(row + 1, min(end, row + _LINES_OF_PLACE)):
        rest = lines.line(other)[base:]
        if TRACEBACK in rest:
            return False
        if rest[:1].isspace() and _FRAME.search(rest) is not None:
            return True
        if is_warning and _EXCEPTION.match(rest) is not None:
            return True
    return False


def _raised(
    lines: _Lines,
    header: int,
    row: int,
    match: re.Match[str],
    *,
    frames: Sequence[TracebackFrame],
    previous: Raised | None,
) -> Raised:
    message, end_row = _message(lines, row, match.end(), header)
    own = next((frame for frame in reversed(frames) if frame.is_own), None)
    above = _above(lines, header)
    link = _link(lines, header, previous)
    before = lines.text(header).partition(TRACEBACK)[0]
    is_plain = (not before or "%|" in before) and CAUGHT_ABOVE.search(above) is None
    is_logged = _LOGGED.search(lines.line(header)) is not None or (
        _REPORTED.search(above) is not None and link is Link.NONE and not lines.line(header).startswith("[rank")
    )
    outermost = not frames or (_OUTERMOST.match(frames[0].function) is not None and frames[0].file != "<string>")
    return Raised(
        safe_text(match[1], _MAX_TEXT),
        message,
        row,
        header,
        end_row,
        own,
        frames[-1] if frames else None,
        _raising_package(frames),
        link,
        is_uncaught=is_plain and outermost and not is_logged,
        has_traceback=True,
        is_caught=CAUGHT_ABOVE.search(above) is not None,
    )


def _above(lines: _Lines, row: int) -> str:
    """The last line above that is not blank, with its prefix."""
    start = lines.rows.of_rank(row).start
    for other in range(row - 1, max(start, row - 3) - 1, -1):
        if lines.text(other).strip():
            return lines.line(other)
    return ""


def _link(lines: _Lines, header: int, previous: Raised | None) -> Link:
    start = max(lines.rows.of_rank(header).start, header - 4)
    if previous is None or previous.end_row < start or previous.row not in lines.rows.of_rank(header):
        return Link.INNER if _ORIGINAL.search(lines.text(header)) else Link.NONE
    above = [lines.text(other) for other in range(max(start, previous.row + 1), header)]
    if any(_DIRECT in text for text in above):
        return Link.DIRECT
    if any(_DURING in text for text in above):
        return Link.DURING
    is_inner = _ORIGINAL.search(lines.text(header)) or any(_ORIGINAL.search(text) for text in above)
    return Link.INNER if is_inner or _REPEATS.search(f"{previous.name}: {previous.message}") else Link.NONE


def _message(lines: _Lines, row: int, start: int, first_row: int) -> tuple[str, int]:
    """The message of an exception, which may have several lines, and the row behind it.

    What the program prints after it is no part of it: a line that starts like one above the traceback, or progress.
    """
    above = range(max(lines.rows.of_rank(row).start, first_row - _LINES_ABOVE), first_row)
    heads = {lines.text(other).partition(" ")[0] for other in above} - _COMMON_HEADS
    parts = [lines.text(row).strip()[start:].strip()]
    stop = min(lines.rows.of_rank(row).stop, row + _MAX_MESSAGE_LINES)
    end = row + 1
    has_prefix = bool(lines.line(row)[: len(lines.line(row)) - len(lines.text(row))].strip())
    for other in range(row + 1, stop):
        text = lines.text(other).strip()
        is_next = TRACEBACK in text or text.startswith((_DIRECT, _DURING)) or _EXCEPTION.match(text) is not None
        if is_next or (not text and not _continues(lines, other + 1, stop)):
            break
        prefix = len(lines.line(other)) - len(lines.text(other))
        if text.partition(" ")[0] in heads or progress(text) is not None or has_warning_level(lines.line(other)):
            break
        if has_prefix is not bool(lines.line(other)[:prefix].strip()) or _NOT_MESSAGE.match(text):
            break
        parts.append(text)
        end = other + 1
    return safe_text("\n".join(part for part in parts if part), _MAX_TEXT * 8), end


def _continues(lines: _Lines, row: int, stop: int) -> bool:
    """Whether a message goes on behind a blank line, as those of PyTorch and of the Hugging Face libraries do."""
    if row >= stop:
        return False
    text = lines.text(row).strip()
    return text.startswith(("Compile with", "For debugging", "If you", "Please", "Did you", "To fix", "what():"))


def _frame(stripped: str, lines: _Lines, row: int, base: int) -> TracebackFrame | None:
    match = _FRAME.search(stripped)
    if match is not None:
        file, line, function = match[1], match[2], match[3] or ""
    else:
        match = _OTHER_FRAME.match(stripped)
        if match is None:
            return None
        file, line, function = (
            (match[1], match[2], match[3] or "")
            if match[1]
            else (match[4], match[5], "")
            if match[4]
            else (match[6], match[7], match[8])
        )
    code = ""
    if row + 1 < lines.rows.of_rank(row).stop:
        code = (lines.line(row + 1)[base:] if base else lines.text(row + 1)).strip()
    is_code = code and _FRAME.search(code) is None and _EXCEPTION.match(code) is None and code[0] not in "^~│╭╰"
    is_own = _LIBRARY.search(file) is None
    return TracebackFrame(
        safe_text(file, _MAX_TEXT),
        int(line),
        safe_text(function.rstrip(","), _MAX_TEXT),
        safe_text(code, _MAX_TEXT) if is_code else "",
        is_own,
    )


def _raising_package(frames: Sequence[TracebackFrame]) -> str:
    """The package of the innermost frame outside PyTorch and Python."""
    for frame in reversed(frames):
        match = _PACKAGE.search(frame.file)
        package = "" if match is None else match[1]
        if frame.is_own or package not in _PASSES_ON:
            return package
    return ""


def _bare_exceptions(lines: _Lines, text: str, taken: Sequence[range]) -> Iterator[Raised]:
    """Exceptions whose traceback the log does not have, and those of C++."""
    matches = list(_BARE.finditer(text))
    half = _MAX_EXCEPTIONS // 2
    if len(matches) > _MAX_EXCEPTIONS:
        matches = matches[:half] + matches[-half:]
    starts = list(accumulate((len(line) + 1 for line in lines.rows.texts), initial=0)) if matches else []
    ends = [rows.stop for rows in taken]
    last_end = 0
    for match in matches:
        row = bisect_right(starts, match.start()) - 1
        index = bisect_right(ends, row)
        if row < last_end or (index < len(taken) and row in taken[index]):
            continue
        message, end_row = _message(lines, row, match.end() - match.start(), row)
        name = match["name"] or match["fatal"] or "Exception"
        if match["thrown"]:
            thrown = _THROWN.search(match["thrown"])
            name = thrown[1] if thrown else "terminate"
            message = _WHAT.sub("", message.lstrip())
        last_end = end_row
        is_end = bool(match["thrown"] or match["fatal"])
        frame = _frame_below(lines, end_row) if match["fatal"] else _frame_above(lines, row)
        yield Raised(safe_text(name, _MAX_TEXT), message, row, row, end_row, frame, frame, is_uncaught=is_end)


def _frame_below(lines: _Lines, row: int) -> TracebackFrame | None:
    """The innermost own frame of the stack below a fatal error, whose innermost frame is the first one."""
    rows = range(row, min(lines.rows.of_rank(row - 1).stop, row + _MAX_STACK_LINES))
    frames = [frame for other in rows if (frame := _frame(lines.text(other), lines, other, 0)) is not None]
    return next((frame for frame in frames if frame.is_own), frames[0] if frames else None)


def _frame_above(lines: _Lines, row: int) -> TracebackFrame | None:
    """The place of an error of syntax, which has no traceback."""
    for other in range(row - 1, max(lines.rows.of_rank(row).start, row - _LINES_OF_PLACE) - 1, -1):
        frame = _frame(lines.text(other), lines, other, 0)
        if frame is not None:
            return frame
    return None
