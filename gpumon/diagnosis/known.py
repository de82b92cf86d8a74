"""What is known of an error of CUDA, PyTorch, NCCL or the driver: how it reads, what it means, how it is mended."""

from dataclasses import dataclass
from enum import Enum


class Context(str, Enum):
    """What is left of the process's CUDA context after the error."""

    ALIVE = "alive"
    """The process can catch the error and go on."""
    DEAD = "dead"
    """Every later CUDA call of the process fails; it must be started again."""
    RESET = "reset"
    """The GPU needs a reset, or the machine a reboot, before any process can use it."""
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "n/a"
    """There is no context yet, or the error is not of CUDA."""


@dataclass(frozen=True, slots=True)
class Fix:
    """One way to mend it.

    Attributes:
        text: What to do, in one sentence.
        code: The command or the lines of Python to copy; empty where there is nothing to type.
    """

    text: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class Pattern:
    """How an error reads.

    Attributes:
        needle: Text that every match contains, letter for letter; it is looked for first, since that is fast.
        regex: The whole; named groups are figures and names that the message carries.
    """

    needle: str
    regex: str


@dataclass(frozen=True, slots=True)
class KnownError:
    """An entry of the catalogue.

    Attributes:
        id: Stable public name.
        section: Under which heading it is listed.
        title: What it is called, in a few words.
        summary: What happened, in one sentence.
        context: What is left of the CUDA context.
        patterns: How it reads; one match is enough.
        causes: What leads to it, most frequent first.
        fixes: What mends it, best first.
        empty_cache: What `torch.cuda.empty_cache()` does here and does not.
        see_more: How to find out more.
        sources: Addresses of the documentation or the source code that says so.
        is_echo: Whether it most often only follows another error, which is then the cause.
    """

    id: str
    section: str
    title: str
    summary: str
    context: Context
    patterns: tuple[Pattern, ...]
    causes: tuple[str, ...]
    fixes: tuple[Fix, ...]
    empty_cache: str
    see_more: tuple[Fix, ...] = ()
    sources: tuple[str, ...] = ()
    is_echo: bool = False
