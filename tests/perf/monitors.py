"""The monitors that are compared: the command of each, and the key that quits it."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

INTERRUPT: Final = "\x03"
_GPUMON_KEYS: Final = {"gpumon": "", "gpumon-processes": "2"}
"""Keys that open the measured screen of gpumon, by the name of the monitor."""


@dataclass(frozen=True, slots=True)
class Monitor:
    """One monitor, at one refresh per second.

    Attributes:
        name: Its name in the table.
        argv: Its command line.
        quit_key: The key that quits it.
        keys: Keys that open the screen that is measured, after the first one.
    """

    name: str
    argv: tuple[str, ...]
    quit_key: str = "q"
    keys: str = ""


def find(names: Sequence[str], peers_bin: Path | None) -> list[Monitor]:
    """Return the monitors that are installed; gpumon is the one of this interpreter.

    Args:
        names: Any of ``gpumon``, ``gpumon-processes`` (its screen of processes), ``nvitop`` and ``gpustat``.
        peers_bin: Folder with the commands of the other monitors; None for PATH.
    """
    monitors = []
    for name in names:
        if name in _GPUMON_KEYS:
            monitors.append(Monitor(name, (sys.executable, "-m", "gpumon"), keys=_GPUMON_KEYS[name]))
        elif (command := shutil.which(name, path=None if peers_bin is None else str(peers_bin))) is not None:
            monitors.append(_peer(name, command))
    return monitors


def _peer(name: str, command: str) -> Monitor:
    if name == "nvitop":
        return Monitor(name, (command, "-m", "full", "--interval", "1"))
    return Monitor(name, (command, "-i", "1"), INTERRUPT)
