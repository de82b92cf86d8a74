"""Frozen records of the known errors in a log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpumon.errors.conditions import Case
from gpumon.errors.entry import ContextState, Fix, KnownError, Values
from gpumon.errors.memory_cause import MemoryCause, is_one_tensor, memory_cause
from gpumon.errors.memory_message import MemoryMessage
from gpumon.errors.prefixes import Timestamp
from gpumon.errors.programs import PROGRAMS
from gpumon.errors.rank import case_of, causes_of, fixes_of

_MAX_FIXES: Final = 8
"""More are a list to search in, not an answer."""


class OomReport(NamedTuple):
    """What the report of a probe contains in addition to the error, for a process that ran out of memory.

    Attributes:
        cause: Why the allocation failed.
        sentences: The evidence for this cause, and other observations.
        rows: The measured values, by name.
        fixes: How to fix the error in this process, best first.
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
        error: The entry of the catalogue.
        line: The number of its first line, from 1.
        text: The text of that line.
        rank: The rank that wrote that line, if the line names one.
        ranks: All ranks that have the error.
        count: The number of lines with the error.
        timestamp: When that line was written, if the log contains it.
        is_cause: Whether the other errors follow from this one.
        is_warning: Whether the line is only a warning.
        values: The values and names in the message, under their JSON names.
        memory: The sizes of an out-of-memory message, in bytes.
        evidence: What this host reports about the error now, by subject.
        oom_report: The report of a probe, for an error that was read from one.
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
        program = PROGRAMS.get(str(self.values.get("program", "")))
        is_ended = self.error.context is ContextState.ALIVE and program is not None and program.ends_itself
        return ContextState.NOT_APPLICABLE if is_ended else self.error.context

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """How to fix the error in this case, best first."""
        if self.oom_report is not None:
            return self.oom_report.fixes
        return _best(fixes_of(self.error, self.case))

    @property
    def case(self) -> Case:
        """The match as conditions see it."""
        cause, program = self.memory_cause, PROGRAMS.get(str(self.values.get("program", "")))
        if cause is MemoryCause.LEAK and program is not None and not program.trains and not program.is_phase:
            cause = MemoryCause.TOO_BIG  # a server has no training loop that could keep tensors
        is_known = program is not None and program.is_phase
        is_one = cause is MemoryCause.TOO_BIG and not is_known and is_one_tensor(self.memory)
        memory = {} if cause is None else {"memory": cause.value, **({"one_tensor": "yes"} if is_one else {})}
        return case_of(self.error, self.text, self.values, memory)


def _best(fixes: Sequence[Fix]) -> tuple[Fix, ...]:
    """The best fixes; the first one is no alternative to another one."""
    first, *others = fixes[:_MAX_FIXES]
    text = first.text.removeprefix("Or ")
    return (first if text == first.text else first._replace(text=text[0].upper() + text[1:])), *others
