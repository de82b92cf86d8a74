"""The program whose log it is, and other signs of a log on which fixes depend."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

from gpumon.core.text_table import table

_TRAINER: Final = "trainer"
"""A program that trains, and may use a server of models for a part of it."""
_CONTAINER_START: Final = "container start"
"""The program that prepares a container: its errors are those of the host."""
_IN_TRAINING: Final = ("loading", "optimizer", "attention")
"""What a program does whatever it is."""


class Program(NamedTuple):
    """A program, or what one does; without values, a script of the user.

    Attributes:
        letters: The letters of files, lines and messages that only its logs and tracebacks contain.
        command: What starts a server, in place of a training script.
        ends_itself: Whether it serves models, and an error of CUDA ends its process.
        has_kernels: Whether its own code calls the kernels, so that the user has none to examine.
        trains: Whether it may run a training step of the user.
        is_phase: Whether it is no program, but what one does.
    """

    letters: Sequence[bytes] = ()
    command: str = ""
    ends_itself: bool = False
    has_kernels: bool = False
    trains: bool = True
    is_phase: bool = False


def _read() -> tuple[Mapping[str, Program], Mapping[str, Sequence[bytes]]]:
    programs: dict[str, Program] = {}
    signs: dict[str, Sequence[bytes]] = {}
    for row in table("gpumon.errors", "programs"):
        head, *columns = (column.strip() for column in row.split("|"))
        kind, _, name = head.partition(" ")
        words = [word.encode() for word in columns[-1].split()]
        if kind == "program":
            flags = columns[0].split()
            programs[name] = Program(words, columns[1], *(flag in flags for flag in _FLAGS))
        else:
            shared = [programs[word[1:].decode()].letters if word.startswith(b"@") else (word,) for word in words]
            signs[name] = list(chain.from_iterable(shared))
    return programs, signs


ONLY_ECHOES: Final = "only echoes"
"""The sign of a log whose errors all follow from one that it does not have; only the complete log shows it."""
_FLAGS: Final = ("server", "kernels", "trains", "phase")
PROGRAMS, SIGNS = _read()
"""Programs by their names, of which the first one in a log counts; and the letters of signs by the names that they have
in conditions."""
_VLLM_PREFIX: Final = re.compile(r"\((?:EngineCore|APIServer|Worker_|VllmWorker)\w{0,12} pid=\d")


def named_program(name: object) -> Program:
    """The program with a name; others are scripts of the user."""
    return PROGRAMS.get(str(name), Program())


def programs_in(letters: bytes, lines: Iterable[str]) -> frozenset[str]:
    """The programs whose files or messages are in a part of a log."""
    names = frozenset(name for name, program in PROGRAMS.items() if any(part in letters for part in program.letters))
    return names | {"vLLM"} if any(map(_VLLM_PREFIX.search, lines)) else names


def program_of(programs: Container[str]) -> str:
    """The program whose log it is, by all programs that the log names, or what it does; empty if it trains.

    A trainer may use a server for a part of its work, and what a program does is its own in every case.
    """
    is_other = _TRAINER in programs or _CONTAINER_START in programs
    return next((name for name in (_IN_TRAINING if is_other else PROGRAMS) if name in programs), "")


@lru_cache(maxsize=8)
def signs_in(letters: bytes, names: frozenset[str]) -> str:
    """The signs in a log on which the order of the fixes of an error depends; empty if it depends on none of them."""
    signs = (name for name, texts in SIGNS.items() if name in names and any(text in letters for text in texts))
    return ", ".join(signs)
