"""The records of known errors: how an error of CUDA, PyTorch, NCCL or the driver reads, its meaning, its fixes."""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

Values = Mapping[str, int | str]
"""The values in a message, by the names of the slots that they fill."""

EXAMPLE_SCRIPT: Final = "train.py"
"""What the code of a fix starts; where the log names the script that was started, this stands in its place."""


class Code(str):
    """A value of a table in `facts`, which may stand in code as it is; one of a log must be safe."""

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
        is_last: Whether the message is a sign of an error only if the log ends with it.
    """

    regex: str
    is_case_sensitive: bool = False
    raised_in: str = ""
    is_last: bool = False


class KnownError(NamedTuple):
    """A known error. Most attributes are fields of its entry, see docs/errors.md.

    Attributes:
        causes_when: Causes that hold under a condition, which stands before each; they replace the others.
        empty_cache: What `torch.cuda.empty_cache()` does and does not do for this error.
        is_echo: Whether the error usually follows another error, which is then the cause.
        is_warning: Whether the message is only a warning, whatever the level of its line: the program continues.
        has_one_reason: Whether a log has one of several reasons: a fix for another reason does not help.
        is_leading: Whether a warning of this kind is often the cause of the error that follows.
        follows: Errors of which this one is a consequence, where the log has them, each with a condition or "".
        borrowed: Names of values that another error of the log has, each with the id of that error.
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
    has_one_reason: bool = False
    is_leading: bool = False
    follows: tuple[tuple[str, str], ...] = ()
    program: str = ""
    borrowed: tuple[tuple[str, str], ...] = ()
    facts: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
