"""A piece of code in a process of its own: what it printed, how it ended, and the error in what it printed."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Optional

FILE_NAME = "train.py"
"""What the file is called in tracebacks."""
_TICK_SECONDS = 0.05
_KEPT_BYTES = 1 << 14
_TRACEBACK = "Traceback (most recent call last):\n"
_RAISED = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?$", re.MULTILINE)


@dataclass(frozen=True)
class Ran:
    """A piece of code that has run.

    Attributes:
        exit_code: Negative for a signal; None if it was ended because its time was over or nobody wanted it any more.
        printed: The end of what it printed to stdout.
        complained: The end of what it printed to stderr.
        seconds: How long it took, Python's start and the import of torch included.
    """

    exit_code: Optional[int]
    printed: str
    complained: str
    seconds: float

    @property
    def answer(self) -> str:
        """The last line of stdout."""
        return (self.printed.splitlines() or [""])[-1]

    @property
    def error(self) -> tuple[str, str]:
        """The class of the exception that ended it, and its text; then what was printed before it."""
        before, found, last = self.complained.rpartition(_TRACEBACK)
        raised = _RAISED.search(last) if found else None
        if raised is None:
            return self._end, self.complained.strip()
        frames = last[: raised.start()]
        text = (raised["text"] or "") + last[raised.end() :]
        return raised["kind"].rpartition(".")[2], f"{text.strip()}\n{before}{found}{frames}".strip()

    @property
    def _end(self) -> str:
        if self.exit_code is None:
            return "no end"
        return f"exit code {self.exit_code}" if self.exit_code >= 0 else f"signal {-self.exit_code}"


def run_code(
    code: str, environment: Mapping[str, str], limit_seconds: float, unwanted: Callable[[], bool] = lambda: False
) -> Ran:
    """Runs a piece of code with this interpreter, as a file of its own, so that tracebacks show its lines.

    Args:
        code: The file's text.
        environment: All of its environment.
        limit_seconds: It is ended after this time.
        unwanted: Looked at again and again; it is ended when nobody wants it any more.
    """
    began = time.monotonic()
    with TemporaryDirectory(prefix="gpumon-") as name:
        folder = Path(name)
        file, printed, complained = folder / FILE_NAME, folder / "stdout", folder / "stderr"
        file.write_text(code, encoding="utf-8")
        with printed.open("wb") as stdout, complained.open("wb") as stderr:
            exit_code = _ended(
                subprocess.Popen(
                    [sys.executable, str(file)],
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    env={**environment, "PYTHONNODEBUGRANGES": "1"},  # no lines of ^^^^ in tracebacks
                    cwd=folder,
                ),
                began + limit_seconds,
                unwanted,
            )
        return Ran(exit_code, _end_of(printed), _end_of(complained), time.monotonic() - began)


def _ended(process: subprocess.Popen[bytes], deadline: float, unwanted: Callable[[], bool]) -> Optional[int]:
    """The exit code, or None if it had to be ended."""
    try:
        while process.poll() is None:
            if time.monotonic() >= deadline or unwanted():
                return None
            time.sleep(_TICK_SECONDS)
        return process.returncode
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _end_of(file: Path) -> str:
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - _KEPT_BYTES))
        return opened.read().decode("utf-8", "replace")
