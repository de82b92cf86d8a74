"""Starts collectors by forking a process that has imported them: the import takes longer than what most of them do.

The rooms that test the collector itself start it as gpumon does.
"""

import ctypes
import functools
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from gpumon.collect import __main__ as collector

_LIBRARY: Final = "libnvidia-ml.so.1"


def start(command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":  # noqa: ANN401
    """Start a program; a fork takes the place of a collector that the loader of programs would start as it is."""
    if command[:2] == [sys.executable, collector.__file__] and "LD_PRELOAD" not in os.environ:
        options["preexec_fn"] = functools.partial(_become, command[1:], options["pass_fds"])
    return subprocess.Popen(command, **options)


def _become(argv: Sequence[str], kept: Sequence[int]) -> None:
    """The collector itself: it has what a new program has, and never returns."""
    gc.freeze()
    os.closerange(3, kept[0])
    os.closerange(kept[0] + 1, 1 << 16)
    for number in {signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH, signal.SIGCHLD, signal.SIGTSTP, signal.SIGCONT}:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)  # read by the loader when a program starts
    library = next((path for folder in folders if folder and (path := Path(folder, _LIBRARY)).exists()), None)
    open_library = ctypes.CDLL.__init__

    def opened(self: ctypes.CDLL, name: str | None, *more: Any, **options: Any) -> None:  # noqa: ANN401
        open_library(self, str(library) if library and name == _LIBRARY else name, *more, **options)

    ctypes.CDLL.__init__ = opened  # type: ignore[method-assign]
    sys.argv = list(argv)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    collector.main()


def replaced() -> SimpleNamespace:
    """The module ``subprocess`` for the starter of collectors."""
    return SimpleNamespace(**{**vars(subprocess), "Popen": start})
