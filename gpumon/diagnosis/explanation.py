"""Frozen records of what a log says."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpumon.diagnosis.known import Fix, KnownError
from gpumon.diagnosis.memory_cause import MemoryCause, memory_cause, ranked_fixes
from gpumon.diagnosis.memory_message import MemoryMessage
from gpumon.diagnosis.prefixes import Moment


@dataclass(frozen=True, slots=True)
class OomStory:
    """What only the file tells that a probe leaves when memory runs out.

    Attributes:
        cause: Why the allocation failed.
        sentences: Why it is this cause, in figures, and what else there is to see.
        rows: The figures, by name.
        fixes: What mends it here, best first.
        place: Which process, on which GPU, and when.
        stack: Who asked, innermost first, each as Python writes it.
    """

    cause: MemoryCause
    sentences: tuple[str, ...]
    rows: tuple[tuple[str, str], ...]
    fixes: tuple[Fix, ...]
    place: str
    stack: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """A known error that a log has, once for all of its lines.

    Attributes:
        error: Which one.
        line: The number of its first line, from 1.
        text: What stands there.
        rank: The rank that wrote that line, if it says so.
        ranks: All ranks that have it.
        count: How many lines have it.
        moment: When it was written, as far as the log tells.
        is_cause: Whether the other errors follow from it.
        is_warning: Whether it only warned.
        figures: What the message says in figures and names.
        memory: The figures of an out-of-memory text.
        evidence: What this machine says to it now, by subject.
        story: What the probe's file tells, for an error that is found in one.
    """

    error: KnownError
    line: int
    text: str
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    count: int = 1
    moment: Moment | None = None
    is_cause: bool = False
    is_warning: bool = False
    figures: Mapping[str, int | str] = field(default_factory=dict)
    memory: MemoryMessage | None = None
    evidence: Mapping[str, str] = field(default_factory=dict)
    story: OomStory | None = None

    @property
    def memory_cause(self) -> MemoryCause | None:
        """Which of the five causes it is, for an out-of-memory error whose figures are there."""
        if self.story is not None:
            return self.story.cause
        return None if self.memory is None else memory_cause(self.memory)

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """What mends it here, best first."""
        if self.story is not None:
            return self.story.fixes
        cause = self.memory_cause
        return self.error.fixes if cause is None else ranked_fixes(cause, self.error.fixes)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was found in a log.

    Attributes:
        matches: The known errors, the first cause first, the others in the order of their lines.
        lines: How many lines were read.
    """

    matches: tuple[Match, ...]
    lines: int

    @property
    def cause(self) -> Match | None:
        """The error that the others follow from."""
        return self.matches[0] if self.matches else None
