"""The monitors that are compared: how each is started and told to quit."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

INTERRUPT: Final = "\x03"


@dataclass(frozen=True, slots=True)
class Monitor:
    """One monitor, refreshing once a second.

    Attributes:
        name: As in the table.
        argv: How it is started.
        quit_key: What ends it.
    """

    name: str
    argv: tuple[str, ...]
    quit_key: str = "q"


def find(names: Sequence[str], peers_bin: Path | None) -> list[Monitor]:
    """The monitors of these names that are installed; gpumon is the one of this interpreter.

    Args:
        names: Among ``gpumon``, ``nvitop`` and ``gpustat``.
        peers_bin: Folder of the peers' commands; without it, the search path.
    """
    found = []
    for name in names:
        if name == "gpumon":
            found.append(Monitor(name, (sys.executable, "-m", "gpumon")))
        elif (command := shutil.which(name, path=None if peers_bin is None else str(peers_bin))) is not None:
            found.append(_peer(name, command))
    return found


def _peer(name: str, command: str) -> Monitor:
    if name == "nvitop":
        return Monitor(name, (command, "-m", "full", "--interval", "1"))
    return Monitor(name, (command, "-i", "1"), INTERRUPT)
