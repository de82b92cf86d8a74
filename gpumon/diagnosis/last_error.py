"""Finds the last unknown error of a log: an exception, a crash, or a line of the level ERROR."""

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from gpumon.core.text import safe_text
from gpumon.diagnosis.unknown import ErrorForm, NumberedLine, TracebackFrame, UnknownError, kind_of
from gpumon.errors.prefixes import Timestamp
from gpumon.errors.raised import MODEL_CODE
from gpumon.errors.scan import LogBlock

_MAX_TRIES: Final = 64
"""Lines per block and sign that are examined, from the end."""
_MAX_TEXT: Final = 400
_LINES_BEFORE: Final = 8
_LINES_AFTER: Final = 4
_LAST_LINES: Final = 5
_MAX_TRACEBACK_LINES: Final = 256
_MAX_MESSAGE_LINES: Final = 12
_NEAR_LINES: Final = 64
"""An exception explains a crash that follows within this number of lines."""

TRACEBACK: Final = "Traceback (most recent call last)"
_SIGNS: Final = (
    (b"tracebackmostrecentcalllast", (TRACEBACK,)),
    (b"error", ("Error", "error:")),
    (b"exception", ("Exception",)),
    (b"interrupt", ("Interrupt",)),
    (b"terminatecalled", ("terminate called",)),
    (b"fault", ("Segmentation fault",)),
    (b"killed", ("Killed",)),
    (b"aborted", ("Aborted",)),
    (b"buserror", ("Bus error",)),
    (b"illegalinstruction", ("Illegal instruction",)),
    (b"panic", ("panic: ",)),
    (b"fatal", ("fatal error", "Fatal Python error")),
)
"""Letters of a block, and the texts to search if the block has them."""
_QUOTED: Final = " \t`*>"
"""What may stand before an error that was pasted from a forum."""
_LEVELS: Final = ("ERROR", "CRITICAL", "FATAL")
"""These are prefixes, which the letters of a block do not contain."""
_EXCEPTION: Final = re.compile(
    r"(?:E {3})?((?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*)?(?:Error|Exception|Interrupt|Exit|Timeout|Failure))(?::\s|:?$)"
)
_ANY_EXCEPTION: Final = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::\s|:?$)")
"""Below a traceback, the class of an exception may have any name."""
_THROWN: Final = re.compile(
    r"terminate called after throwing an instance of '([^']{1,200})'|(Fatal Python error|panic|fatal error): "
)
_WHAT: Final = "what():"
"""What stands before the message of an exception of C++, below its class."""
_REPORTED: Final = re.compile(
    r"(?:(Error) occurred when executing [^:]{1,120}:|(?:- )?(?:\*\*)?Exception Message:(?:\*\*)? "
    r"|!!! (Exception) during processing !!! )(?:([\w.]{1,120}(?:Error|Exception)): )?"
)
"""How ComfyUI prints the exception of a node."""
_CRASH: Final = re.compile(
    r"(?:\S+: line \d+: +)?(?:\d+ +)?(Segmentation fault|Bus error|Killed|Aborted|Illegal instruction)\b(?! process)"
)
_LOGGED: Final = re.compile(r"(?:^|[\s\[]|level=)(ERROR|CRITICAL|FATAL|E\d{4}|error|fatal)(?=[\]: |])")
_REPORTS: Final = re.compile(r"(?:ChildFailedError|CalledProcessError|Process(?:Exited|Raised)Exception|SystemExit)$")
_FRAME: Final = re.compile(r'File "([^"]{1,300})", line (\d{1,7})(?:,? in (\S{1,100}))?')
_NOTEBOOK_FRAME: Final = re.compile(
    r"(?:File (\S{1,300}?):(\d{1,7})(?:, in ([\w.]{1,100}))?|(Cell In ?\[\d+\]), line (\d+))"
)
_LIBRARY: Final = re.compile(
    r"(?:site|dist)-packages|[\\/]lib(?:64)?[\\/]python[\d.]+[\\/]|[Pp]ython\d*[\\/]lib[\\/]|[\\/]bin[\\/]"
    r"|^<(?!stdin|string)"
)
_PACKAGE: Final = re.compile(rf"(?:(?:site|dist)-packages|modules(?=[\\/]{MODEL_CODE}))[\\/](\w{{1,80}})[\\/.]")
_CAUSED: Final = ("During handling of the above", "The above exception was")
IGNORED: Final = re.compile(
    r"Exception ignored (?:in|while)\b|Error in atexit\._run_exitfuncs|Error in sys\.excepthook"
)
"""What Python prints above the traceback of an exception that it does not raise, mostly while the program ends."""


class _Candidate(NamedTuple):
    """A line that reads like an error.

    Attributes:
        position: Its index in the block.
        form: How it reads.
        name: The class, signal or level.
    """

    position: int
    form: ErrorForm
    name: str


class LastError:
    """Remembers the last unknown error and the last lines of a log.

    Args:
        timestamp_of: The timestamp of a line of a block.
    """

    def __init__(self, timestamp_of: Callable[[LogBlock, int], Timestamp | None]) -> None:
        self.error: UnknownError | None = None
        self.last_lines: tuple[NumberedLine, ...] = ()
        self._timestamp_of = timestamp_of

    def add(self, block: LogBlock, known: Collection[int], echoes: Collection[int] = ()) -> None:
        """Reads a block.

        Args:
            block: The block.
            known: The positions of known errors.
            echoes: Those of them that follow another error. Such a line ends the message of the error before it.
        """
        self._keep_last_lines(block)
        chosen: _Candidate | None = None
        form, line = (None, 0) if self.error is None else (self.error.form, self.error.line)
        for candidate in _candidates(block):
            number = block.numbers[candidate.position]
            is_late_crash = candidate.form is ErrorForm.CRASH and number > line + _NEAR_LINES
            replaces = form is None or candidate.form <= form or is_late_crash
            if not replaces:
                continue
            if not _is_known(block, candidate, known, echoes):
                chosen, form, line = candidate, candidate.form, number
            elif candidate.form is ErrorForm.EXCEPTION and _THROWN.match(block.texts[candidate.position]):
                form, line = candidate.form, number  # it explains the crash that follows
        if chosen is not None:
            self.error = _unknown_error(block, chosen, self._timestamp_of(block, chosen.position))

    def _keep_last_lines(self, block: LogBlock) -> None:
        last: list[NumberedLine] = []
        for position in range(block.end - 1, block.first - 1, -1):
            if len(last) == _LAST_LINES:
                break
            if block.lines[position].strip():
                last.append(_log_line(block, position))
        self.last_lines = (*self.last_lines, *reversed(last))[-_LAST_LINES:]


def _candidates(block: LogBlock) -> list[_Candidate]:
    """The last lines of a block that read like errors, in the order of the lines."""
    signs = [sign for letters, texts in _SIGNS if letters in block.letters for sign in texts]
    text = "".join(block.lines)
    signs += [level for level in _LEVELS if level in text]
    if not signs:
        return []
    starts = [0, *accumulate(map(len, block.lines))]
    candidates: dict[int, _Candidate] = {}
    for sign in signs:
        end = starts[block.end]
        for _ in range(_MAX_TRIES):
            index = text.rfind(sign, starts[block.first], end)
            if index < 0:
                break
            position = bisect_right(starts, index) - 1
            end = starts[position]
            candidate = _raised(block, position) if sign == TRACEBACK else _read(block, position)
            if candidate is not None:
                candidates.setdefault(candidate.position, candidate)
    return [candidates[position] for position in sorted(candidates)]


def _read(block: LogBlock, position: int) -> _Candidate | None:
    """A line that is an error by itself."""
    text = block.texts[position].lstrip(_QUOTED)
    match = _EXCEPTION.match(text)
    if match is not None:
        return _Candidate(position, _exception_form(match[1]), match[1])
    match = _THROWN.match(text)
    if match is not None:
        return _Candidate(position, ErrorForm.EXCEPTION, match[1] or match[2])
    match = _REPORTED.match(text)
    if match is not None:
        return _Candidate(position, ErrorForm.EXCEPTION, match[3] or match[2] or match[1] or "Exception")
    match = _CRASH.match(text)
    if match is not None:
        return _Candidate(position, ErrorForm.CRASH, match[1])
    match = _LOGGED.search(block.lines[position], 0, _MAX_TEXT)
    return None if match is None else _Candidate(position, ErrorForm.LOGGED, "Error in the log")


def _raised(block: LogBlock, header: int) -> _Candidate | None:
    """The exception at the end of a traceback: the next line that is not indented."""
    prefix = len(block.lines[header]) - len(block.texts[header].lstrip())
    last = header
    for position in _of_rank(block, header, 1, _MAX_TRACEBACK_LINES):
        line = block.lines[position][prefix:]
        if not line or line[0].isspace() or line.startswith('File "'):
            last = position if line.strip() else last
            continue
        match = _ANY_EXCEPTION.match(block.texts[position])
        if match is None:
            return None
        above = next(_of_rank(block, header, -1, 1), None)
        is_ignored = above is not None and IGNORED.search(block.texts[above]) is not None
        return _Candidate(position, ErrorForm.LOGGED if is_ignored else _exception_form(match[1]), match[1])
    return None if last == header else _Candidate(last, ErrorForm.LOGGED, "Traceback without its last line")


def _exception_form(name: str) -> ErrorForm:
    return ErrorForm.REPORT if _REPORTS.search(name) else ErrorForm.EXCEPTION


def _is_known(block: LogBlock, candidate: _Candidate, known: Collection[int], echoes: Collection[int]) -> bool:
    """Whether the message of an error, which may have several lines, contains a known error."""
    if candidate.position in known:
        return True
    is_thrown = _THROWN.match(block.texts[candidate.position]) is not None
    for position in _of_rank(block, candidate.position, 1, _MAX_MESSAGE_LINES):
        text = block.texts[position]
        if TRACEBACK in text or text.startswith(_CAUSED) or not text.strip():
            return False
        if position in known:
            return position not in echoes or (is_thrown and text.lstrip().startswith(_WHAT))
        if _EXCEPTION.match(text.lstrip()) is not None:
            return False
    return False


def _of_rank(block: LogBlock, position: int, step: int, count: int) -> Iterator[int]:
    """The positions of the next or previous lines of the same rank."""
    lines = block.by_rank
    row = lines.rows[position]
    rank = lines.of_rank(row)
    for other in range(row + step, row + step * (count + 1), step):
        if other not in rank:
            return
        yield lines.positions[other]


def _unknown_error(block: LogBlock, candidate: _Candidate, timestamp: Timestamp | None) -> UnknownError:
    position = candidate.position
    after = list(_of_rank(block, position, 1, _LINES_AFTER))
    before = list(_of_rank(block, position, -1, _LINES_BEFORE))[::-1]
    text = block.texts[position].strip()
    following = next((block.texts[other].strip() for other in after[:2] if block.texts[other].strip()), "")
    if following and text.endswith((":", f"'{candidate.name}'")):
        text = f"{text} {following}"
    frames = list(_frames(block, candidate))
    return UnknownError(
        candidate.form,
        kind_of(text, candidate.form),
        safe_text(candidate.name, _MAX_TEXT),
        safe_text(text, _MAX_TEXT),
        block.numbers[position],
        block.ranks[position],
        timestamp,
        _shown_frame(frames),
        _raising_package(frames),
        tuple(_log_line(block, other) for other in (*before, position, *after)),
    )


def _frames(block: LogBlock, candidate: _Candidate) -> Iterator[TracebackFrame]:
    """The frames of the traceback, from the innermost one."""
    # Python prints the stack of a fatal error below it, innermost frame first.
    step = 1 if candidate.name == "Fatal Python error" else -1
    for position in _of_rank(block, candidate.position, step, _MAX_TRACEBACK_LINES):
        text = block.texts[position].strip()
        frame = _read_frame(text, next(iter(_of_rank(block, position, 1, 1)), None), block)
        if frame is not None:
            yield frame
        if TRACEBACK in text or text.startswith(_CAUSED):
            return


def _shown_frame(frames: Sequence[TracebackFrame]) -> TracebackFrame | None:
    """The innermost frame in the user's own code, or else the innermost one."""
    return next((frame for frame in frames if frame.is_own), next(iter(frames), None))


def _raising_package(frames: Sequence[TracebackFrame]) -> str:
    """The package of the innermost frame outside PyTorch and Python, which pass on what they are called with."""
    for frame in frames:
        match = _PACKAGE.search(frame.file)
        package = "" if match is None else match[1]
        if frame.is_own or (package and package != "torch"):
            return package
    return ""


def _read_frame(text: str, following: int | None, block: LogBlock) -> TracebackFrame | None:
    match = _FRAME.search(text)
    if match is not None:
        file, line, function = match[1], match[2], match[3] or ""
    else:
        match = _NOTEBOOK_FRAME.match(text)
        if match is None:
            return None
        file, line, function = match[1] or match[4], match[2] or match[5], match[3] or ""
    code = "" if following is None else block.texts[following].strip()
    is_code = code and _FRAME.search(code) is None and _EXCEPTION.match(code) is None and not code.startswith("^")
    return TracebackFrame(
        safe_text(file, _MAX_TEXT),
        int(line),
        safe_text(function, _MAX_TEXT),
        safe_text(code, _MAX_TEXT) if is_code else "",
        _LIBRARY.search(file) is None,
    )


def _log_line(block: LogBlock, position: int) -> NumberedLine:
    return NumberedLine(block.numbers[position], safe_text(block.lines[position].rstrip(), _MAX_TEXT))
