"""Reads the exceptions of a block of a log: tracebacks of Python, what ``terminate`` prints for C++, and bare messages.

A traceback is read per rank, so that those of several ranks may be interleaved. An exception that was raised from
another one, or that repeats one of a worker process, keeps its link to it.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, takewhile
from typing import Final

from gpumon.core.text import safe_text
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.raised import (
    CELL,
    CLASS,
    DIRECT,
    DURING,
    EXCEPTION,
    FRAME,
    LINES_ABOVE,
    MAX_MESSAGE_LINES,
    MAX_TEXT,
    MAX_TRACEBACK_LINES,
    TRACEBACK,
    Link,
    Raised,
    TracebackFrame,
    asking_frame,
    calling_frame,
    frame_at,
    message_at,
    own_frame,
)
from gpumon.errors.scan import LogBlock, RankLines
from gpumon.errors.signs import has_error_level, has_sign, sign

_MAX_STACK_LINES: Final = 100
_LINES_OF_PLACE: Final = 4
_CALL_STACK: Final = "Call stack:"
"""How the logging module begins the stack of a message that it could not write."""
_ANNOUNCED: Final = sign("announced").texts[0]
_MAX_FOREIGN_LINES: Final = 10
"""Lines of other streams that may stand between two lines of a traceback."""
_MAX_EXCEPTIONS: Final = 256
"""Exceptions per block that are read: the first and the last ones, half of each."""
_WORDS: Final = tuple(map(str.encode, sign("exception").texts))
_WARNING: Final = lazy_pattern(r"\w*Warning: ")
_ANY_EXCEPTION: Final = lazy_pattern(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::\s|:?$)")
"""Directly below a traceback, the class of an exception may have any name."""
_BARE: Final = lazy_pattern(
    r"\n(?:(?P<test>E {3,60})(?=\S)|(?:[`*> ]{1,4})?(?P<name>(?!(?:Error|Exception|Failure|Timeout|NotFound)\b)"
    rf"{CLASS})(?::(?=\s)|:?$)"
    r"|(?P<thrown>terminate called) after throwing an instance of '(?P<cpp>[^'\n]{1,200})'"
    r"|(?P<fatal>Fatal Python error|fatal runtime error|panic): "
    rf"|(?:\*\* ?|- )?(?:\*\*)?Exception Message:(?:\*\*)? |{_ANNOUNCED} )",
    re.MULTILINE,
)
_IN_FRAME: Final = ('File "', "│", "|", "^", "~", "[Previous line repeated", "...", "╭", "╰", "\u2771")
_DIGITS: Final = str.maketrans("123456789", "000000000")
_OF_SYNTAX: Final = frozenset({"SyntaxError", "IndentationError", "TabError"})
_LINES_OF_SYNTAX: Final = 7
"""Lines from the place of such an error to its message, as two processes may write each of them."""
_OBJECT: Final = lazy_pattern(r"\s*(?:(?:handle|future|task|transport|protocol): <.*)?")
_REPORTED: Final = lazy_pattern(r"\b(?:ERROR|WARNING|WARN|CRITICAL)\b")
_LOGGED: Final = lazy_pattern(r"\b(?:ERROR|WARNING|WARN|CRITICAL|INFO)\b")

_PLACE_OF_TEST: Final = lazy_pattern(r"(\S.{0,200}?\.py):(\d{1,7}): (\w+)$")
_TEST_LINE: Final = lazy_pattern(r"(?:\S.{0,60} )?E(?: |$)")
_TEST_HEADS: Final = ("=====", "_____")


def exceptions(block: LogBlock, notices: Iterable[int] = ()) -> list[Raised]:
    """The exceptions of a block, in the order of its lines by rank, of which some are known notices."""
    if not any(map(block.words.vocabulary.__contains__, _WORDS)):
        return []
    rows = _without(block.by_rank, notices)
    text = "\n" + "\n".join(rows.texts)
    starts = list(accumulate((len(line) + 1 for line in rows.texts), initial=0))
    below: list[Raised] = []
    bare = [(_row_of(match, starts), match) for match in _ends_of(_BARE.finditer(text))]
    for header in dict.fromkeys(_row_of(match, starts) for match in _ends_of(re.finditer(re.escape(TRACEBACK), text))):
        item = _below_traceback(rows, header, below[-1] if below else None)
        below += [] if item is None else [item]
    taken = {row for item in below for row in range(item.first_row, item.end_row)}
    return sorted((*below, *_bare_exceptions(rows, bare, taken)), key=lambda item: item.row)


def _without(rows: RankLines, notices: Iterable[int]) -> RankLines:
    """The lines with blank ones in place of notices, which another program may print within a traceback."""
    lines, texts = rows.lines.copy(), rows.texts.copy()
    for row in notices:
        is_raised = EXCEPTION.match(texts[row]) or _WARNING.match(texts[row])
        if not lines[row][:1].isspace() and not is_raised:
            lines[row] = texts[row] = ""
    return replace(rows, lines=lines, texts=texts)


def _ends_of(matches: Iterable[re.Match[str]]) -> list[re.Match[str]]:
    """The first and the last ones of many matches."""
    some, half = list(matches), _MAX_EXCEPTIONS // 2
    return some if len(some) <= _MAX_EXCEPTIONS else some[:half] + some[-half:]


def _row_of(match: re.Match[str], starts: Sequence[int]) -> int:
    return bisect_right(starts, match.start()) - 1


def _below_traceback(rows: RankLines, header: int, previous: Raised | None) -> Raised | None:
    """The exception at the end of a traceback: the next line that is not indented."""
    line, text = rows.lines[header], rows.texts[header]
    prefix = line[: len(line) - len(text)]
    base = len(prefix) if text.startswith(TRACEBACK) else len(prefix.rstrip()) + bool(prefix.strip())
    rank = rows.of_rank(header)
    end = min(rank.stop, header + MAX_TRACEBACK_LINES)
    if prefix.strip() and header + 1 < end and rows.lines[header + 1][:1].isspace():  # only the first line has it
        base = 0
    frames: list[TracebackFrame] = []
    foreign, is_below_body, own_shape = 0, True, _shape(line[:base])
    for row in range(header + 1, end):
        rest = rows.lines[row][base:]
        stripped = rest.strip()
        if not stripped:
            continue
        if _shape(rows.lines[row][:base]) != own_shape:  # of another stream
            foreign += 1
            continue
        is_indented = rest[0].isspace()
        is_in_frame = stripped.startswith(_IN_FRAME) or (not is_indented and CELL.match(stripped) is not None)
        if TRACEBACK in stripped and not is_in_frame:
            return None
        if is_indented or is_in_frame:
            frame = frame_at(stripped, rows, row, base)
            if frame is not None:
                frames.append(frame)
                foreign = 0
            is_below_body = True
            continue
        match = EXCEPTION.match(stripped) or (_ANY_EXCEPTION.match(stripped) if is_below_body and frames else None)
        is_none = match is None or match[1].isupper() or (match[1].islower() and "." not in match[1])
        is_framed = match is not None and has_sign("framed", stripped[match.end() :].lstrip())
        if match is not None and not is_none and (is_framed or not _goes_on(rows, row, end, base)):
            return _raised(rows, header, row, match, frames=frames, previous=previous)
        foreign += 1
        is_below_body = False
        if foreign > _MAX_FOREIGN_LINES:
            return None
    return None if end < rank.stop or foreign else _cut(rows, header, end, frames, previous)


def _cut(
    rows: RankLines, header: int, end: int, frames: Sequence[TracebackFrame], previous: Raised | None
) -> Raised | None:
    """A traceback without its last line, which may be above it; a terminal shows by ``^C`` that ctrl+c was pressed."""
    is_stopped, above = rows.lines[header].startswith("^C"), rows.texts[header - 1] if header else ""
    said = EXCEPTION.match(above) if previous is None or previous.end_row < header else None
    name = "KeyboardInterrupt" if is_stopped else said[1] if said else "Traceback without its last line"
    message = above[said.end() :].strip() if said else ""
    where = own_frame(frames), frames[-1] if frames else None, asking_frame(frames)
    return Raised(name, message, end - 1, header, end, *where, has_traceback=True) if frames or is_stopped else None


def _shape(prefix: str) -> str:
    """What the prefixes of one stream have in common: all but the digits."""
    return prefix.translate(_DIGITS)


def _goes_on(rows: RankLines, row: int, end: int, base: int) -> bool:
    """Whether a traceback goes on below a line, which then is one of another stream, whatever it looks like."""
    is_warning = _WARNING.match(rows.lines[row][base:]) is not None
    for other in range(row + 1, min(end, row + _LINES_OF_PLACE)):
        rest = rows.lines[other][base:]
        if TRACEBACK in rest or rest.startswith(_CALL_STACK):
            return False
        is_indented = rest[:1].isspace()
        if (is_indented and (is_warning or (", in " in rest and FRAME.search(rest)))) or (
            is_warning and EXCEPTION.match(rest)
        ):
            return True
    return False


def _raised(
    rows: RankLines,
    header: int,
    row: int,
    match: re.Match[str],
    *,
    frames: Sequence[TracebackFrame],
    previous: Raised | None,
) -> Raised:
    is_empty = rows.lines[row].rstrip().endswith(match[1])  # Python then writes the class alone
    message, end_row = ("", row + 1) if is_empty else message_at(rows, row, match.end(), header)
    if not message and frames and frames[-1].code.startswith("assert "):
        message = frames[-1].code
    above = _above(rows, header)
    link = _link(rows, header, previous)
    before = rows.texts[header].partition(TRACEBACK)[0]
    own = _pointed_out(rows, header, row) or own_frame(frames)
    is_caught = has_sign("caught above", above) and (own is None or not has_sign("thread", above))  # others need it
    is_caught |= link in {Link.DIRECT, Link.DURING} and previous is not None and previous.is_caught
    is_plain = (not before.strip() or "%|" in before) and not is_caught
    is_logged = _LOGGED.search(rows.lines[header]) is not None or (
        _REPORTED.search(above) is not None and link is Link.NONE
    )
    is_record = has_sign("warning", above) or has_error_level(above)  # of a logger, with the exception that it got
    is_logged |= is_record and bool(frames) and frames[0].function != "<module>"
    is_pretty = has_sign("pretty printed", above) or has_sign("pretty printed", rows.texts[header])  # from main on
    start = frames[0].function if frames else ""
    outermost = not frames or (has_sign("outermost", start) and frames[0].file != "<string>")
    outermost |= is_pretty and (start == "main" or has_sign("task", above))
    script = next((frame for frame in frames if not frame.function.startswith("_run_")), None)  # below that of -m
    return Raised(
        safe_text(match[1], MAX_TEXT),
        message,
        row,
        header - (_ANNOUNCED in above),
        end_row,
        own,
        frames[-1] if frames else None,
        asking_frame(frames),
        frames[0] if frames else None,
        link,
        is_uncaught=is_plain and outermost and not is_logged,
        is_of_script=script is not None and script.is_own and script.function == "<module>",
        has_traceback=True,
        is_caught=is_caught,
        is_of_test=above.startswith("_____")
        or (above.startswith("-----") and rows.texts[header - 2].startswith(("ERROR: ", "FAIL: "))),
        caller=calling_frame(frames, own),
        evaluates=next((frame.function for frame in frames if has_sign("evaluates", frame.function)), ""),
    )


def _pointed_out(rows: RankLines, header: int, row: int) -> TracebackFrame | None:
    """The user's line that PyTorch names next to a traceback: what it compiled, or what a backward pass belongs to."""
    rank = rows.of_rank(row)
    below = range(row, min(rank.stop, row + MAX_MESSAGE_LINES))
    first = next((other + 1 for other in below if has_sign("compiled code", rows.texts[other])), 0)
    stack = list(
        takewhile(
            lambda other: rows.texts[other].strip(),
            range(first, min(rank.stop, first + MAX_MESSAGE_LINES)) if first else (),
        )
    )
    if not first:
        base = len(rows.lines[header]) - len(rows.texts[header])
        above = range(header - 1, max(rank.start, header - MAX_TRACEBACK_LINES) - 1, -1)
        indented = list(takewhile(lambda other: rows.lines[other][base : base + 1] in {"", " "}, above))
        is_of_forward = any(has_sign("forward call", rows.texts[other]) for other in indented[:_LINES_OF_PLACE])
        stack = sorted(indented if is_of_forward else ())
    return own_frame([frame for other in stack if (frame := frame_at(rows.texts[other].strip(), rows, other, 0))])


def _above(rows: RankLines, row: int) -> str:
    """The last line above that is not blank, with its prefix; asyncio names its objects in the lines below it."""
    near = range(row - 1, max(rows.of_rank(row).start, row - 3) - 1, -1)
    return next((rows.lines[other] for other in near if not _OBJECT.fullmatch(rows.texts[other])), "")


def _link(rows: RankLines, header: int, previous: Raised | None) -> Link:
    rank, is_inner = rows.of_rank(header), has_sign("inner", rows.texts[header])
    start = max(rank.start, header - 4 - _MAX_FOREIGN_LINES)
    if previous is None or previous.end_row < start or previous.row not in rank:
        return Link.INNER if is_inner else Link.NONE
    above = "\n".join(rows.texts[max(start, previous.row + 1) : header])
    if DIRECT in above or DURING in above:
        return Link.DIRECT if DIRECT in above else Link.DURING
    above = "\n".join(rows.texts[max(header - 4, previous.row + 1) : header])
    return Link.INNER if is_inner or has_sign("inner", above) else Link.NONE


def _frames_above(rows: RankLines, row: int, lines: int) -> range:
    """The lines above an exception that may be frames, upward: its header may be far above them, or not in the log."""
    start, top = rows.of_rank(row).start, row - lines
    while top > max(start, row - MAX_TRACEBACK_LINES) and rows.lines[top][:1].isspace():
        top -= 1
    return range(row - 1, max(start, top) - 1, -1)


def _bare_exceptions(
    rows: RankLines, matches: Iterable[tuple[int, re.Match[str]]], taken: set[int]
) -> Iterator[Raised]:
    """Exceptions whose traceback the log does not have, and those of C++."""
    last_end = 0
    for row, match in matches:
        if row < last_end or row in taken:
            continue
        if match["test"]:
            item = _failed_test(rows, row)
            last_end = row + 1 if item is None else item.end_row
            yield from () if item is None else (item,)
            continue
        message, last_end = message_at(rows, row, match.end() - match.start() - 1, row)
        if match["name"] == "KeyboardInterrupt" and rows.lines[row].endswith(match["name"]):  # it never has one
            message, last_end = "", row + 1
        name = match["name"] or match["fatal"] or match["cpp"] or "Exception"
        if match["thrown"]:
            message = message.lstrip().removeprefix("what():").lstrip()
        is_syntax = match["name"] in _OF_SYNTAX
        near = range(last_end, min(rows.of_rank(row).stop, last_end + _MAX_STACK_LINES))  # innermost frame first
        if not match["fatal"]:  # an error of syntax has its place above it
            near = _frames_above(rows, row, _LINES_OF_SYNTAX if is_syntax else _LINES_OF_PLACE)
        frames = [frame for other in near if (frame := frame_at(rows.texts[other], rows, other, 0)) is not None]
        own = next((frame for frame in frames if frame.is_own), None)
        is_script = is_syntax and own is not None
        is_end = is_script or bool(match["thrown"] or match["fatal"])
        yield Raised(
            *(safe_text(name, MAX_TEXT), message, row, row, last_end, own, frames[0] if frames else None, own),
            is_uncaught=is_end,
            is_of_script=is_script,
        )


def _failed_test(rows: RankLines, row: int) -> Raised | None:
    """An exception as pytest shows it, or None: its lines begin with E, and its place stands below them."""
    rank = rows.of_rank(row)
    end = next((other for other in range(row, rank.stop) if not _TEST_LINE.match(rows.lines[other])), rank.stop)
    below = takewhile(
        lambda text: not text.startswith(_TEST_HEADS), rows.texts[end : min(end + LINES_ABOVE, rank.stop)]
    )
    first_row = row
    place = next(filter(None, map(_PLACE_OF_TEST.match, below)), None)
    is_own = place is not None and not has_sign("library", place[1])
    files = [] if place is None else [TracebackFrame(place[1], int(place[2]), "", "", is_own)]
    for other in range(row - 1, max(rank.start, row - MAX_TRACEBACK_LINES) - 1, -1):
        text = rows.texts[other]
        if text.startswith(_TEST_HEADS) or _TEST_LINE.match(rows.lines[other]):
            break
        first_row = other
        if text.startswith("> ") and files and not files[-1].code:
            files[-1] = files[-1]._replace(code=safe_text(text[1:].strip(), MAX_TEXT))
        frame = frame_at(text.strip(), rows, other, 0)
        files += [] if frame is None else [frame]
    shown = (line.partition("E ")[2].strip() for line in rows.lines[row : min(end, row + MAX_MESSAGE_LINES)])
    first, *more = (safe_text(line, MAX_TEXT) for line in shown)
    named = EXCEPTION.match(first)
    if named is None and not files:  # such as a row of a table
        return None
    name = named[1] if named is not None else place[3] if place is not None else "AssertionError"
    lines = (first.removeprefix(name).removeprefix(":").strip(), *(more if first.endswith(":") else ()))
    message = "\n".join(lines)[: MAX_TEXT * 8]  # what follows are mostly the values that were compared
    own = next((frame for frame in files if frame.is_own), None)
    raising = files[0] if files else None
    return Raised(safe_text(name, MAX_TEXT), message, row, first_row, end, own, raising, is_of_test=True)
