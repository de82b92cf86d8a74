"""Starts the workers of pytest-xdist as forks of a process that has imported the tests: one import in place of four."""

import gc
import importlib
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from execnet import gateway_base, gateway_io

_READY: "list[subprocess.Popen[bytes]]" = []


class _Forked(gateway_io.Popen2IOMaster):
    """The streams of a worker: one that is ready, or a new interpreter in place of a worker that crashed."""

    def __init__(self, args: Sequence[str], execmodel: Any) -> None:  # noqa: ANN401
        if not _READY:
            super().__init__(args, execmodel)
            return
        self.popen = _READY.pop(0)
        gateway_base.Popen2IO.__init__(self, self.popen.stdin, self.popen.stdout, execmodel)


def start(count: int, root: Path, tests: Iterable[Path]) -> None:
    """Import tests, and start workers that have them."""
    for path in tests:
        with suppress(Exception, pytest.skip.Exception):  # the collection reports it
            importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))
    gc.collect()
    gc.freeze()
    options: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "preexec_fn": _work}
    _READY.extend(subprocess.Popen([sys.executable], **options) for _ in range(count))
    vars(gateway_io)["Popen2IOMaster"] = _Forked


def _work() -> None:
    """The worker itself, which never returns: it runs the line that it is sent, as a new interpreter would."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in {int(path.name) for path in Path("/proc/self/fd").iterdir()} - {0, 1, 2, nothing}:
        os.dup2(nothing, number, inheritable=False)  # not closed: what had it opened may close it late
    sys.argv = ["-c"]
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    exec(eval(sys.stdin.readline()), {"__name__": "__main__"})
    os._exit(0)
