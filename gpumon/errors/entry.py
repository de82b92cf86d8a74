"""The records of known errors: how an error of CUDA, PyTorch, NCCL or the driver reads, its meaning, its fixes."""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

Values = Mapping[str, int | str]
"""The values in a message, by the names of the slots that they fill."""


class Code(str):
    """A value of a table in `facts`, which may stand in code as it is; one of a log is quoted if it must be."""

    __slots__ = ()


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


class Fix(NamedTuple):
    """One way to fix an error.

    Attributes:
        text: What to do, in one imperative sentence.
        code: The shell command or the lines of Python to copy; empty if there is nothing to type.
        when: A condition; empty for a fix that is always shown.
        is_first: Whether the fix comes before others where its condition holds, wherever it stands in the entry.
        is_hidden_otherwise: Whether the fix is shown only where its condition holds: it is false for other logs.
    """

    text: str
    code: str = ""
    when: str = ""
    is_first: bool = False
    is_hidden_otherwise: bool = False


class Wording(NamedTuple):
    """How an error reads in a log.

    Attributes:
        regex: The regular expression; its named groups are the values that the message contains.
        is_case_sensitive: Whether upper and lower case must be as written: in another case, the text is ordinary prose.
        raised_in: Where an exception is raised that reads so: `package`, `model-code` or `own-code`; empty for a
            wording that is an error anywhere.
    """

    regex: str
    is_case_sensitive: bool = False
    raised_in: str = ""


class KnownError(NamedTuple):
    """A known error.

    Attributes:
        id: Stable public name.
        section: Heading under which the error is listed.
        title: What happened, in a few words.
        summary: The cause, in one or two sentences.
        context: The state of the CUDA context after the error.
        wordings: How the error reads; one match is enough.
        causes: Possible causes, most frequent first.
        causes_when: Causes that hold under a condition, which stands before each; they replace the others.
        fixes: How to fix the error, best first.
        empty_cache: What `torch.cuda.empty_cache()` does and does not do for this error.
        see_more: How to get more information.
        sources: Addresses of the documentation or the source code on which the entry is based.
        said_by: The programs and their versions in which a wording of this entry was found; empty if none was searched.
        is_echo: Whether the error usually follows another error, which is then the cause.
        is_warning: Whether the message is only a warning, whatever the level of its line: the program continues.
        is_last: Whether the message is a sign of an error only if the log ends with it, and has no error.
        has_one_reason: Whether the error is one name for several reasons, of which a log has one: a fix for another
            reason does not help.
        is_leading: Whether a warning of this kind is often the cause of the error that follows.
        follows: Errors of which this one is a consequence, where the log has them, each with a condition or "".
        program: The program that alone has this error; empty if several have it.
        borrowed: Names of values that another error of the log has, each with the id of that error.
        facts: Names of functions that add values.
        host: Names of what this host can report about the error.
    """

    id: str
    section: str
    title: str
    summary: str
    context: ContextState
    wordings: tuple[Wording, ...]
    causes: tuple[str, ...]
    fixes: tuple[Fix, ...]
    empty_cache: str
    causes_when: tuple[tuple[str, str], ...] = ()
    see_more: tuple[Fix, ...] = ()
    sources: tuple[str, ...] = ()
    said_by: str = ""
    is_echo: bool = False
    is_warning: bool = False
    is_last: bool = False
    has_one_reason: bool = False
    is_leading: bool = False
    follows: tuple[tuple[str, str], ...] = ()
    program: str = ""
    borrowed: tuple[tuple[str, str], ...] = ()
    facts: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
