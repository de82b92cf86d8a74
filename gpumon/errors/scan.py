"""Splits a log of any size into blocks of clean lines, each with its number and rank.

Colors are removed, lines are taken from the records of containers, and lines are split where they are too long or
contain an escaped line end. Consecutive blocks overlap, so that a message on the border is complete in one of them. At
most two blocks are in memory at once; the bytes and the lines of a block are bounded.
"""

import json
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, chain, count
from operator import add
from typing import Final

from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.patterns import LetterWords
from gpumon.errors.prefixes import may_have_timestamps, split_prefixes, timestamp_of

BLOCK_BYTES: Final = 1 << 20
MAX_BLOCK_LINES: Final = 1 << 16
"""Line ends per block: the memory that a line needs is many times its characters if it has few of them."""
MAX_LINE: Final = 4096
"""Characters per line; a longer line is split, and read like a line that a terminal has wrapped."""
OVERLAP_LINES: Final = 512
"""Maximum length of a message, in lines of all ranks together."""
OVERLAP_CHARACTERS: Final = 1 << 17
"""Maximum length of a message, in characters of all ranks together; the line that exceeds it is included."""
STAMPED_LINES: Final = 256
"""Lines before an error in which the timestamp of its rank is searched; a traceback has no timestamps."""
MAX_BLANK_LINES: Final = 64
"""Consecutive blank lines that are kept."""

_ESCAPED_LINE_END: Final = lazy_pattern(r"\\n(?!\"|(?<=\\\\n)[a-z]{2})")
"""A line end within a string of a JSON log, but not the start of a name in a path, such as C:\\\\bin\\\\nvcc.

At the end of the string, the record ends anyway.
"""
_WINDOWS_PATH: Final = lazy_pattern(r"\b[A-Za-z]:\\[^\\\n]|\w\\[\w.\\-]{1,200}\.py\b")
"""A path whose backslashes are not escaped, as they would be in a JSON log: names in it may start with n."""
_MANY_LINE_ENDS: Final = "\n" * (MAX_BLANK_LINES + 2)
_BLANK_LINES: Final = lazy_pattern(rf"\n{{{len(_MANY_LINE_ENDS)},}}")
_RECORD_START: Final = lazy_pattern(r'\{ ?"log" ?: ?"')
"""The start of a record of Docker's log driver "json-file", which contains one line of the program."""
_ANSI_ESCAPE: Final = lazy_pattern(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2048}(?:\x07|\x1b\\)|[@-Z\\-_])")
_QUOTES: Final = (("\u2018", "'"), ("\u2019", "'"), ("\u201c", '"'), ("\u201d", '"'))
"""Quotes as compilers, forums and mail programs print them, each with that of the message."""
_EXCEPTION: Final = lazy_pattern(r"[A-Za-z_][\w.]*(?:: |$)")
_CUT_FRAME: Final = lazy_pattern(r'File "[^"\n]*\n')
"""The start of a frame of a traceback whose file goes on in the next line."""
_MIN_CUT: Final = 2
_MAX_PIECES: Final = 8
_GROUP_MARGIN: Final = lazy_pattern(r"(?m)^ +(?:[|+] (?=Exception Group|  |\S)|\|$|\+[-+]+(?: \S+ -+)?$)")
"""What stands left of the exceptions of a group, and between them."""
_POWERSHELL: Final = lazy_pattern(
    r"(?m)^\S.{0,300}? : ((?:.*\n){1,3}?)\S.{0,300}:\d+ \S+:\d+\r?\n\+ "
    r"(?:.*\n){1,8}?.*: NativeCommandError.*\n(?:\s*\n)?"
)
"""What PowerShell writes around the first line of the error output of a program, and within it."""
_GLUED: Final = lazy_pattern(r"\n([ \t]*)([\w.]{1,100}Error)(?:: )?\2(?:: ){0,2}(?:(.+)\3|(.*?))(?:: )?(?=\r?\n)")
"""The last line of the tracebacks of two processes that wrote it at once, piece by piece."""
_REMOTE: Final = lazy_pattern(r"(?m)System\.Management\.Automation\.RemoteException:? ?|^ {3,}RemoteException$")
"""What PowerShell writes for a line that has no text, or as the kind of an error."""
_CARET_ESCAPE: Final = lazy_pattern(r"\^\[\[[0-9;]{0,20}m")
"""A color as some viewers print it."""


def _without_powershell(error: re.Match[str]) -> str:
    """The line of the program alone, on as many lines as before."""
    return re.sub(r"\r?\n", "", error[1]) + "\n" * error[0].count("\n")


_SUBSTITUTIONS: Final = (
    ("\x1b", _ANSI_ESCAPE, ""),
    ("Exception Group Traceback", _GROUP_MARGIN, ""),
    ("^[[", _CARET_ESCAPE, ""),
    ("RemoteException", _REMOTE, ""),
    ("NativeCommandError", _POWERSHELL, _without_powershell),
    ("Error", _GLUED, r"\n\1\2: \3\4"),
)


@dataclass(frozen=True)
class RankLines:
    """The lines of a block, one rank after the other.

    Attributes:
        positions: Their indexes in the block.
        starts: The first line of each rank.
    """

    positions: Sequence[int]
    lines: list[str]
    texts: list[str]
    starts: Sequence[int]

    @cached_property
    def rows(self) -> Mapping[int, int] | Sequence[int]:
        """The index here of each position."""
        if isinstance(self.positions, range):
            return self.positions
        return {position: row for row, position in enumerate(self.positions)}

    def of_rank(self, row: int) -> range:
        """The lines of the rank that wrote a line."""
        index = bisect_right(self.starts, row)
        return range(self.starts[index - 1], self.starts[index] if index < len(self.starts) else len(self.texts))


@dataclass(frozen=True)
class LogBlock:
    """A block of a log.

    Attributes:
        texts: The lines without colors and without the prefixes of loggers.
        ranks: The rank that each line names, or None.
        first: Lines before this index were evaluated in the previous block.
        end: Lines from this index on are evaluated in the next block, which contains more lines after them.
        is_complete: Whether its last line has an end.
    """

    numbers: list[int]
    lines: list[str]
    texts: list[str]
    ranks: list[int | None]
    first: int
    end: int
    is_complete: bool = True
    _stamped: dict[int, list[int]] = field(default_factory=dict, init=False)

    @cached_property
    def text(self) -> str:
        """The lines, joined."""
        return "\n".join(self.lines)

    @cached_property
    def starts(self) -> Sequence[int]:
        """Where each line starts in the text, and where the next one would start."""
        return [0, *map(add, accumulate(map(len, self.lines)), count(1))]

    def stamped(self, part: int) -> list[int]:
        """The lines of a part that have a timestamp."""
        if part not in self._stamped:
            start = max(0, part * STAMPED_LINES)
            lines = self.lines[start : (part + 1) * STAMPED_LINES]
            may_be = (index for index, digits in enumerate(may_have_timestamps(lines)) if digits is not None)
            self._stamped[part] = [start + index for index in may_be if timestamp_of(lines[index]) is not None]
        return self._stamped[part]

    @cached_property
    def words(self) -> LetterWords:
        """The words of all lines by rank; one that a line end breaks is one word."""
        return LetterWords("".join(map(str.strip, self.by_rank.texts)))

    @cached_property
    def by_rank(self) -> RankLines:
        """The lines by rank; one without a rank and a timestamp belongs to that of the line before, as wrapped ones."""
        in_order = RankLines(range(len(self.texts)), self.lines, self.texts, (0,))
        if self.ranks.count(None) == len(self.ranks):
            return in_order
        owner, stamps = None, may_have_timestamps(self.lines)
        positions: dict[int | None, list[int]] = defaultdict(list)
        for position, rank in enumerate(self.ranks):
            if rank is None:
                is_wrapped = owner is not None and stamps[position] is None
                positions[owner if is_wrapped else None].append(position)
            else:
                positions[rank].append(position)
                owner = owner if rank == owner or self._interrupts(position) else rank
        if len(positions) == 1:
            return in_order
        starts = [0, *accumulate(map(len, positions.values()))][:-1]
        indexes = list(chain.from_iterable(positions.values()))
        lines, texts = (list(map(some.__getitem__, indexes)) for some in (self.lines, self.texts))
        return RankLines(indexes, lines, texts, starts)

    def _interrupts(self, position: int) -> bool:
        """Whether a line with a rank stands between two lines without one that belong together, as of a traceback."""
        beside = slice(position - 1, position + 2, 2)
        if self.ranks[beside] != [None, None]:
            return False
        above, below = self.lines[beside]
        is_above_more = not above[:1].strip() or above.endswith(":")
        return is_above_more and (not below[:1].strip() or _EXCEPTION.match(below) is not None)


def blocks(chunks: Iterable[bytes]) -> Iterator[LogBlock]:
    """Splits a log into blocks."""
    number = 1
    block: LogBlock | None = None
    for data, is_last in _block_data(chunks):
        clean = _clean(data, number)
        number += data.count(b"\n")
        block = _joined(block, clean, is_last=is_last)
        yield block


def _block_data(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Pieces of at most the size of a block that end with a line, and whether a piece is the last one."""
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        while len(buffer) > BLOCK_BYTES:
            yield _taken(buffer), False
    while True:
        yield _taken(buffer), not buffer
        if not buffer:
            return


def _taken(buffer: bytearray) -> bytes:
    """The data of a block, which is removed from the buffer."""
    limit = min(BLOCK_BYTES, len(buffer))
    size, line_ends = 0, 0
    while size < limit:
        larger = min(limit, 2 * size or MAX_BLOCK_LINES)
        line_ends += buffer.count(b"\n", size, larger)
        for character, line_end in ((b"\r", b"\r"), (b"\\", rb"\n")):
            if buffer.find(character, size, larger) >= 0:  # faster than to count, and rarely true
                line_ends += buffer.count(line_end, size, larger)
        if line_ends > MAX_BLOCK_LINES:
            break
        size = larger
    if size < len(buffer):
        size = buffer.rfind(b"\n", 0, size) + 1 or size
    data = bytes(buffer[:size])
    del buffer[:size]
    return data


def _clean(data: bytes, first_number: int) -> LogBlock:
    text = data.decode("utf-8", "replace")
    if '"log"' in text:
        text = "\n".join(map(_without_record, text.split("\n")))
    for part, pattern, replacement in _SUBSTITUTIONS:
        if part in text:
            text = pattern.sub(replacement, text)
    for typographic, plain in _QUOTES:
        if typographic in text:
            text = text.replace(typographic, plain)
    if "\\" in text:
        text = "\n".join([_unescaped(line) if "\\" in line else line for line in text.split("\n")])
    numbers, lines = _numbered_lines(text.replace("\r\n", "\n").removesuffix("\n"), first_number) if text else ([], [])
    if _CUT_FRAME.search(text) is not None:
        numbers, lines = _unwrapped(numbers, lines, 1 if b"NativeCommandError" in data else _MIN_CUT)
    if "\r" in text or max(map(len, lines), default=0) > MAX_LINE:
        pairs = [(number, piece) for number, line in zip(numbers, lines, strict=True) for piece in _pieces(line)]
        numbers, lines = [number for number, _ in pairs], [piece for _, piece in pairs]
    ranks, texts = split_prefixes(lines)
    return LogBlock(numbers, lines, texts, ranks, 0, len(lines), data.endswith(b"\n"))


def _unwrapped(numbers: Sequence[int], lines: Sequence[str], min_cut: int) -> tuple[list[int], list[str]]:
    """The lines as they were before a terminal broke them at its width, which the frames of tracebacks show."""
    widths: Counter[int] = Counter()
    for index, line in enumerate(lines):
        if _CUT_FRAME.search(f"{line}\n") is not None:
            for piece in lines[index : index + _MAX_PIECES]:
                if piece.rpartition('File "')[2].count('"'):
                    break
                widths[len(piece)] += 1
    width = max((width for width, count in widths.items() if count >= min_cut), default=0)
    pairs: list[tuple[int, str]] = []
    is_open, before = False, ""
    for number, line in zip(numbers, lines, strict=True):
        word = line.lstrip(" ").partition(" ")[0]
        is_rest = is_open and any(map(str.isalnum, word)) and not line.startswith(("  ", "Traceback"))
        if is_rest and (len(before) == width or (line[0] != " " and len(before) + len(word) >= width)):
            pairs[-1] = pairs[-1][0], pairs[-1][1] + line
        else:
            pairs.append((number, line))
        is_full = len(line) == width or (len(line) < width and line.endswith(" "))
        is_open, before = is_full and line[-1:] != "|" and any(map(str.isalnum, line)), line
    return [number for number, _ in pairs], [line for _, line in pairs]


def _unescaped(line: str) -> str:
    """The line with its escaped line ends as carriage returns, unless it has a path of Windows."""
    is_path = _WINDOWS_PATH.search(line) is not None
    return line if is_path else _ESCAPED_LINE_END.sub("\r", line.replace(r"\r\n", r"\n"))


def _without_record(line: str) -> str:
    """The line of the program that a record contains, after its timestamp, so that broken messages can be joined."""
    if _RECORD_START.match(line) is None:
        return line
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return line
    text, timestamp = record.get("log"), record.get("time")
    if not isinstance(text, str):
        return line
    text = text.removesuffix("\n").replace("\n", "\r")
    return f"{timestamp} {text}" if isinstance(timestamp, str) else text


def _numbered_lines(text: str, number: int) -> tuple[list[int], list[str]]:
    """The lines with their numbers, without most of many consecutive blank ones."""
    numbers: list[int] = []
    lines: list[str] = []
    start = 0
    for run in _BLANK_LINES.finditer(text) if _MANY_LINE_ENDS in text else ():
        lines += text[start : run.start() + MAX_BLANK_LINES].split("\n")
        numbers += range(number, number + len(lines) - len(numbers))
        start = run.end()
        number = numbers[-1] + start - run.start() - MAX_BLANK_LINES
    lines += text[start:].split("\n")
    numbers += range(number, number + len(lines) - len(numbers))
    return numbers, lines


def _pieces(line: str) -> Iterator[str]:
    """What a terminal would have shown one after the other (progress bars), with overlong text split."""
    if len(line) <= MAX_LINE and "\r" not in line:
        yield line
        return
    for shown in filter(None, line.split("\r")) if line.strip("\r") else [""]:
        for start in range(0, len(shown) or 1, MAX_LINE):
            yield shown[start : start + MAX_LINE]


def _joined(previous: LogBlock | None, block: LogBlock, *, is_last: bool) -> LogBlock:
    """A block preceded by the end of the previous one."""
    end = len(block.lines) if is_last else _overlap_start(block.lines, len(block.lines))
    if previous is None:
        return replace(block, end=end)
    start = _overlap_start(previous.lines, previous.end)
    kept = len(previous.lines) - start
    return LogBlock(
        previous.numbers[start:] + block.numbers,
        previous.lines[start:] + block.lines,
        previous.texts[start:] + block.texts,
        previous.ranks[start:] + block.ranks,
        previous.end - start,
        kept + end,
        block.is_complete,
    )


def _overlap_start(lines: Sequence[str], end: int) -> int:
    """The first of the lines before ``end`` that belong to both blocks."""
    start, characters = end, 0
    while start and end - start < OVERLAP_LINES and characters < OVERLAP_CHARACTERS:
        start -= 1
        characters += len(lines[start])
    return start
