"""Runs a short program in a separate process: its output, exit code, and the error in its output."""

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
"""Name of the file in tracebacks."""
_TICK_SECONDS = 0.05
_KEPT_BYTES = 1 << 14
_TRACEBACK = "Traceback (most recent call last):\n"
_RAISED = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?$", re.MULTILINE)


@dataclass(frozen=True)
class FinishedProgram:
    """A program that has ended.

    Attributes:
        exit_code: Negative for a signal; None if it was killed at its time limit or after a cancellation.
        stdout: End of its standard output.
        stderr: End of its standard error.
        seconds: Its duration, including the start of Python and the import of torch.
    """

    exit_code: Optional[int]
    stdout: str
    stderr: str
    seconds: float

    @property
    def answer(self) -> str:
        """The last line of stdout."""
        return (self.stdout.splitlines() or [""])[-1]

    @property
    def error(self) -> tuple[str, str]:
        """Class and text of the exception that ended the program; the output before it follows the text."""
        before, header, last = self.stderr.rpartition(_TRACEBACK)
        raised = _RAISED.search(last) if header else None
        if raised is None:
            return self._end, self.stderr.strip()
        frames = last[: raised.start()]
        text = (raised["text"] or "") + last[raised.end() :]
        return raised["kind"].rpartition(".")[2], f"{text.strip()}\n{before}{header}{frames}".strip()

    @property
    def _end(self) -> str:
        if self.exit_code is None:
            return "no end"
        return f"exit code {self.exit_code}" if self.exit_code >= 0 else f"signal {-self.exit_code}"


def run_code(
    code: str, environment: Mapping[str, str], limit_seconds: float, is_cancelled: Callable[[], bool] = lambda: False
) -> FinishedProgram:
    """Runs a program with this interpreter, from a file, so that tracebacks show its lines.

    Args:
        code: Text of the program.
        environment: Its complete environment.
        limit_seconds: The program is killed after this time.
        is_cancelled: Polled while the program runs; the program is killed when it returns True.
    """
    start = time.monotonic()
    with TemporaryDirectory(prefix="gpumon-") as name:
        folder = Path(name)
        file, stdout_file, stderr_file = folder / FILE_NAME, folder / "stdout", folder / "stderr"
        file.write_text(code, encoding="utf-8")
        with stdout_file.open("wb") as stdout, stderr_file.open("wb") as stderr:
            exit_code = _wait(
                subprocess.Popen(
                    [sys.executable, str(file)],
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    env={**environment, "PYTHONNODEBUGRANGES": "1"},  # no lines of ^^^^ in tracebacks
                    cwd=folder,
                ),
                start + limit_seconds,
                is_cancelled,
            )
        return FinishedProgram(exit_code, _end_of(stdout_file), _end_of(stderr_file), time.monotonic() - start)


def _wait(process: subprocess.Popen[bytes], deadline: float, is_cancelled: Callable[[], bool]) -> Optional[int]:
    """Waits for the process; returns its exit code, or None if it had to be killed."""
    try:
        while process.poll() is None:
            if time.monotonic() >= deadline or is_cancelled():
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
