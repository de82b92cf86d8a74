"""A known error in a log, with the values in its message and what they mean for its fixes."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from operator import itemgetter
from typing import Final, NamedTuple

from gpumon.core.text import safe_text
from gpumon.core.units import bytes_text
from gpumon.errors.candidate import PatternHit
from gpumon.errors.conditions import Case
from gpumon.errors.entry import ContextState, Fix, KnownError, Values
from gpumon.errors.lazy_pattern import lazy_pattern
from gpumon.errors.memory import (
    MemoryCause,
    MemoryMessage,
    is_first_step,
    is_one_tensor,
    memory_cause,
    read_memory_message,
)
from gpumon.errors.prefixes import Timestamp, timestamp_of
from gpumon.errors.programs import named_program, signs_in
from gpumon.errors.raised import TRACEBACK
from gpumon.errors.rank import case_of, causes_of, fixes_of, signs_of
from gpumon.errors.scan import STAMPED_LINES, LogBlock
from gpumon.errors.signs import has_information_level, has_sign

_MAX_FIXES: Final = 8
"""More are a list to search in, not an answer."""
_MAX_EXCERPT: Final = 400
"""Characters of a log line that are shown."""
_MAX_VALUE: Final = 200
"""Characters of a value that a message contains."""
_LAST_ERROR: Final = lazy_pattern(r"\bLast error: {0,4}(?P<reason>[^\n]{0,200})$")
"""NCCL's own reason, on this line or the next one."""
_MAX_LINES_TO_REASON: Final = 4
_MAX_LINES_NEAR: Final = 24
"""Lines around an error that show the operating system and the program."""
_MAX_TRACEBACK_LINES: Final = 32
_SMALL_SHARE: Final = 0.02
"""A process that may only use this share of a GPU can hardly do anything on it."""


class OomReport(NamedTuple):
    """What the report of a probe contains in addition to the error, for a process that ran out of memory.

    Attributes:
        sentences: The evidence for this cause, and other observations.
        place: The process, the GPU and the time.
        stack: The stack of the allocation, innermost call first, as Python prints it.
    """

    cause: MemoryCause
    sentences: tuple[str, ...]
    rows: tuple[tuple[str, str], ...]
    fixes: tuple[Fix, ...]
    place: str
    stack: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """A known error in a log, once for all of its lines.

    Attributes:
        count: The number of lines with the error.
        timestamp: When that line was written, if the log contains it.
        is_cause: Whether the other errors follow from this one.
        values: The values and names in the message, under their JSON names.
        evidence: What this host reports about the error now, by subject.
        is_first_step: Whether memory ran out before a step was complete, as the progress bars show.
    """

    error: KnownError
    line: int
    text: str
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    count: int = 1
    timestamp: Timestamp | None = None
    is_cause: bool = False
    is_warning: bool = False
    values: Values = field(default_factory=dict)
    memory: MemoryMessage | None = None
    evidence: Mapping[str, str] = field(default_factory=dict)
    oom_report: OomReport | None = None
    is_first_step: bool = False

    @property
    def is_code(self) -> bool:
        """Whether the line is the code that raises the error, as a traceback quotes it, instead of its message."""
        return self.text.startswith("raise ")

    @property
    def memory_cause(self) -> MemoryCause | None:
        """Why the allocation failed, for an out-of-memory error whose sizes are known."""
        if self.oom_report is not None:
            return self.oom_report.cause
        return None if self.memory is None else memory_cause(self.memory, is_first_step=self.is_first_step)

    @property
    def causes(self) -> tuple[str, ...]:
        """The possible causes in this case, most frequent first."""
        return causes_of(self.error, self.case)

    @property
    def context(self) -> ContextState:
        """The state of the CUDA context after the error; a server ends itself."""
        is_server = named_program(self.values.get("program")).ends_itself
        is_ended = self.error.context is ContextState.ALIVE and is_server
        return ContextState.NOT_APPLICABLE if is_ended else self.error.context

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """How to fix the error in this case, best first; the first one is no alternative to another one."""
        if self.oom_report is not None:
            return self.oom_report.fixes
        first, *others = fixes_of(self.error, self.case)[:_MAX_FIXES]
        text = first.text.removeprefix("Or ")
        return first._replace(text=text[0].upper() + text[1:]) if text != first.text else first, *others

    @property
    def case(self) -> Case:
        """The match as conditions see it."""
        cause, program = self.memory_cause, named_program(self.values.get("program"))
        if cause is MemoryCause.LEAK and not program.trains and not program.is_phase:
            cause = MemoryCause.TOO_BIG  # a server has no training loop that could keep tensors
        is_one = cause is MemoryCause.TOO_BIG and not program.is_phase and is_one_tensor(self.memory)
        memory = {} if cause is None else {"memory": cause.value, **({"one_tensor": "yes"} if is_one else {})}
        if self.memory is not None and self.memory.allowed is not None:
            memory["allowed_size"] = bytes_text(self.memory.allowed)
            memory |= {"small_limit": "yes"} if self.memory.allowed < _SMALL_SHARE * (self.memory.total or 0) else {}
        if self.memory is not None and self.memory.others:
            pid, held = max(self.memory.others, key=itemgetter(1))
            memory |= {"holder": str(pid), "held_size": bytes_text(held)}
        return case_of(self.error, self.text, self.values, memory)


def match_of(block: LogBlock, hit: PatternHit) -> Match:
    """The match of a known error, with the values in its message."""
    text = hit.text
    memory = read_memory_message(text)
    texts = {**hit.line_match.groups, **dict(_last_error(hit, text))}
    values: dict[str, int | str] = {name: safe_text(text, _MAX_VALUE) for name, text in texts.items()}
    if signs := signs_in(block.words.letters, signs_of(hit.error)):
        values["signs"] = signs
    return Match(
        hit.error,
        block.numbers[hit.position],
        safe_text(hit.line_match.line if len(hit.line_match.line) <= _MAX_EXCERPT else text, _MAX_EXCERPT),
        rank=block.ranks[hit.position],
        timestamp=timestamp_at(block, hit.position),
        is_warning=is_warning(block, hit),
        values=values if memory is None else values | memory.sizes(),
        memory=memory,
        is_first_step=memory is not None and is_first_step(lines_near(block, hit)),
    )


def lines_near(block: LogBlock, hit: PatternHit) -> list[str]:
    """The lines around an error, with their prefixes."""
    return block.lines[max(0, hit.position - _MAX_LINES_NEAR) : hit.position + _MAX_LINES_NEAR]


def _last_error(hit: PatternHit, message: str) -> Iterator[tuple[str, str]]:
    """The reason that NCCL prints below its error, as a value."""
    if "Last error:" not in message:
        return
    end = hit.lines.of_rank(hit.next_row - 1).stop
    texts = hit.lines.texts[hit.next_row - 1 : min(end, hit.next_row + _MAX_LINES_TO_REASON)]
    for text, following in zip_longest(texts, texts[1:], fillvalue=""):
        line = _LAST_ERROR.search(text.rstrip())
        if line is not None:
            reason = line["reason"].strip() or following.strip()
            yield from (("last_error", reason),) if reason else ()
            return


def is_warning(block: LogBlock, hit: PatternHit) -> bool:
    """Whether an error or its line is a warning; Python prints one that starts with a line end below "Warning:".

    A line that was split from a record of a JSON log has the level of that record, which its first line contains.
    """
    position = hit.position
    if hit.error.is_warning or has_information_level(block.lines[position]):
        return True
    is_announced = position > 0 and block.lines[position - 1].rstrip().endswith("Warning:")
    record = bisect_left(block.numbers, block.numbers[position])
    is_marked = any(has_sign("warning", block.lines[index]) for index in {position, record})
    return is_announced or is_marked or _is_ignored(block, position)


def _is_ignored(block: LogBlock, position: int) -> bool:
    """Whether a line ends the traceback of an exception that the program caught, as the line above it says."""
    prefix = len(block.lines[position]) - len(block.texts[position].lstrip())
    for index in range(position - 1, max(0, position - _MAX_TRACEBACK_LINES), -1):
        line = block.lines[index]
        if TRACEBACK in line:
            return has_sign("caught above", block.lines[index - 1])
        if not line[prefix : prefix + 1].isspace():
            return False
    return False


def timestamp_at(block: LogBlock, position: int) -> Timestamp | None:
    """The timestamp of a line, or that of the last line of the same rank before it, which only serves to compare.

    The lines that were split from a record have the time of that record.
    """
    rank, part = block.ranks[position], position // STAMPED_LINES
    for index in reversed(block.stamped(part - 1) + block.stamped(part)):
        is_near = position - STAMPED_LINES < index <= position
        if is_near and (rank is None or block.ranks[index] in {None, rank}):
            timestamp = timestamp_of(block.lines[index])
            is_own = block.numbers[index] == block.numbers[position]
            return timestamp if is_own or timestamp is None else timestamp._replace(text="")
    return None
