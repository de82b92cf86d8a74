"""Makes the match of a known error from where its wording stands in a block of a log."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import zip_longest
from typing import Final

from gpumon.core.text import safe_text
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.match import Match
from gpumon.errors.memory_cause import is_first_step
from gpumon.errors.memory_message import read_memory_message
from gpumon.errors.prefixes import Timestamp, timestamp_of
from gpumon.errors.programs import signs_in
from gpumon.errors.rank import names_of
from gpumon.errors.scan import LogBlock
from gpumon.errors.signs import has_information_level, has_warning_level
from gpumon.errors.tracebacks import CAUGHT_ABOVE, TRACEBACK
from gpumon.errors.candidate import PatternHit

_MAX_EXCERPT: Final = 400
"""Characters of a log line that are shown."""
_MAX_VALUE: Final = 200
"""Characters of a value that a message contains."""
_MAX_LINES_BACK: Final = 256
"""Lines before an error in which the timestamp of its rank is searched; a traceback has no timestamps."""
_LAST_ERROR: Final = lazy_pattern(r"\bLast error: {0,4}(?P<reason>[^\n]{0,200})$")
"""NCCL's own reason, on this line or the next one."""
_MAX_LINES_TO_REASON: Final = 4
_MAX_LINES_NEAR: Final = 24
"""Lines around an error that show the operating system and the program."""
_MAX_TRACEBACK_LINES: Final = 32


def match_of(block: LogBlock, hit: PatternHit) -> Match:
    """The match of a known error, with the values in its message."""
    memory = read_memory_message(hit.text)
    texts = {**hit.line_match.groups, **dict(_last_error(hit))}
    values: dict[str, int | str] = {name: safe_text(text, _MAX_VALUE) for name, text in texts.items()}
    if signs := signs_in(block.words.letters, names_of(hit.error)[0]):
        values["signs"] = signs
    return Match(
        hit.error,
        block.numbers[hit.position],
        safe_text(hit.line_match.line if len(hit.line_match.line) <= _MAX_EXCERPT else hit.text, _MAX_EXCERPT),
        rank=block.ranks[hit.position],
        timestamp=timestamp_at(block, hit.position),
        is_warning=is_mere_warning(block, hit),
        values=values if memory is None else values | memory.sizes(),
        memory=memory,
        is_first_step=memory is not None and is_first_step(lines_near(block, hit)),
    )


def lines_near(block: LogBlock, hit: PatternHit) -> list[str]:
    """The lines around an error, with their prefixes."""
    return block.lines[max(0, hit.position - _MAX_LINES_NEAR) : hit.position + _MAX_LINES_NEAR]


def is_mere_warning(block: LogBlock, hit: PatternHit) -> bool:
    """Whether the line is only a warning, or an information, so that the program continues."""
    line = block.lines[hit.position]
    return hit.error.is_warning or _is_warning(block, hit.position) or has_information_level(line)


def _last_error(hit: PatternHit) -> Iterator[tuple[str, str]]:
    """The reason that NCCL prints below its error, as a value."""
    if "Last error:" not in hit.text:
        return
    end = hit.lines.of_rank(hit.next_row - 1).stop
    texts = hit.lines.texts[hit.next_row - 1 : min(end, hit.next_row + _MAX_LINES_TO_REASON)]
    for text, following in zip_longest(texts, texts[1:], fillvalue=""):
        line = _LAST_ERROR.search(text.rstrip())
        if line is not None:
            reason = line["reason"].strip() or following.strip()
            yield from (("last_error", reason),) if reason else ()
            return


def _is_warning(block: LogBlock, position: int) -> bool:
    """Whether a line is a warning; Python prints a message that starts with a line end below the word "Warning:".

    A line that was split from a record of a JSON log has the level of that record, which its first line contains.
    """
    is_announced = position > 0 and block.lines[position - 1].rstrip().endswith("Warning:")
    record = bisect_left(block.numbers, block.numbers[position])
    is_warning = any(has_warning_level(block.lines[index]) for index in {position, record})
    return is_announced or is_warning or _is_ignored(block, position)


def _is_ignored(block: LogBlock, position: int) -> bool:
    """Whether a line ends the traceback of an exception that the program caught, as the line above it says."""
    prefix = len(block.lines[position]) - len(block.texts[position].lstrip())
    for index in range(position - 1, max(0, position - _MAX_TRACEBACK_LINES), -1):
        line = block.lines[index]
        if TRACEBACK in line:
            return CAUGHT_ABOVE.search(block.lines[index - 1]) is not None
        if not line[prefix : prefix + 1].isspace():
            return False
    return False


def timestamp_at(block: LogBlock, position: int) -> Timestamp | None:
    """The timestamp of a line, or that of the last line of the same rank before it, which only serves to compare.

    The lines that were split from a record have the time of that record.
    """
    start = max(0, position - _MAX_LINES_BACK + 1)
    rank = block.ranks[position]
    for index in range(position, start - 1, -1):
        if rank is None or block.ranks[index] in {None, rank}:
            timestamp = timestamp_of(block.lines[index])
            if timestamp is not None:
                is_own = block.numbers[index] == block.numbers[position]
                return timestamp if is_own else timestamp._replace(text="")
    return None
