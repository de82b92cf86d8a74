"""The form of a catalogue entry: how an error of CUDA, PyTorch, NCCL or the driver reads, its meaning, its fixes."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

Values = Mapping[str, int | str]
"""The values in a message, by the names of the groups that match them."""


class ContextState(str, Enum):
    """The state of the process's CUDA context after the error. The values are public names."""

    ALIVE = "alive"
    """The process can catch the error and continue."""
    DEAD = "dead"
    """Every later CUDA call of the process fails; the process must be restarted."""
    RESET = "reset"
    """No process can use the GPU until the GPU is reset or the host is rebooted."""
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "n/a"
    """There is no context yet, or the error is not a CUDA error."""


@dataclass(frozen=True, slots=True)
class Fix:
    """One way to fix an error.

    Attributes:
        text: What to do, in one imperative sentence.
        code: The shell command or the lines of Python to copy; empty if there is nothing to type.
        first_for: Parts of a message for which this fix is the best one, wherever it stands in the entry; or signs in
            the log, such as torch.compile (see `programs.SIGNS`), or its platform.
        hidden_otherwise: Whether the fix states what only such a message or log shows, so that it is false for others.
    """

    text: str
    code: str = ""
    first_for: tuple[str, ...] = ()
    hidden_otherwise: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    """How an error reads in a log.

    Attributes:
        needle: Text that every match of the regular expression contains. The log is searched for needles first, which
            is fast.
        regex: The regular expression; its named groups are the values that the message contains.
        is_case_sensitive: Whether upper and lower case must be as written: in another case, the text is ordinary prose.
    """

    needle: str
    regex: str
    is_case_sensitive: bool = False


@dataclass(frozen=True, slots=True)
class KnownError:
    """An entry of the catalogue.

    Attributes:
        id: Stable public name.
        section: Heading under which the error is listed.
        title: What happened, in a few words.
        summary: The cause, in one or two sentences.
        context: The state of the CUDA context after the error.
        patterns: How the error reads; one match is enough.
        causes: Possible causes, most frequent first.
        fixes: How to fix the error, best first.
        empty_cache: What `torch.cuda.empty_cache()` does and does not do for this error.
        see_more: How to get more information.
        sources: Addresses of the documentation or the source code on which the entry is based.
        said_by: The programs and their versions in which a wording of this entry was found; empty if none was searched.
        is_echo: Whether the error usually follows another error, which is then the cause.
        is_warning: Whether the message is only a warning, whatever the level of its line: the program continues.
        is_last: Whether the message is a sign of an error only if the log ends with it, and has no error.
    """

    id: str
    section: str
    title: str
    summary: str
    context: ContextState
    patterns: tuple[Pattern, ...]
    causes: tuple[str, ...]
    fixes: tuple[Fix, ...]
    empty_cache: str
    see_more: tuple[Fix, ...] = ()
    sources: tuple[str, ...] = ()
    said_by: str = ""
    is_echo: bool = False
    is_warning: bool = False
    is_last: bool = False
