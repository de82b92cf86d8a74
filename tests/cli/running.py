"""Runs gpumon as a shell does. A test module that imports this one is skipped where gpumon is not installed."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.cli.fork_server import ForkServer, start_variables

PATIENCE_SECONDS: Final = 100.0
"""Longer than the selftest's own deadline, which names the check that hangs."""


def _installed_gpumon() -> str:
    """The path of the entry point: that of this interpreter, else the one on PATH."""
    path = shutil.which("gpumon", path=str(Path(sys.executable).parent)) or shutil.which("gpumon")
    if path is None:
        pytest.skip("needs gpumon installed: pip install -e .", allow_module_level=True)
    return path


GPUMON: Final = _installed_gpumon()
_SERVER: Final = ForkServer()


def run(*argv: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run gpumon without a terminal; an exit code above 128 stands for a signal, as in a shell."""
    variables = {**env, "TERM": "xterm"}
    if not start_variables(variables):  # a small environment that is not about the interpreter
        variables |= start_variables(os.environ)
    return _forked(argv, variables) if _SERVER.serves(variables) else shell('"$@"', *argv, env=env)


def _forked(argv: tuple[str, ...], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run gpumon in a fork of a process that has imported it."""
    (output, output_end), (errors, errors_end) = os.pipe(), os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    ended = _SERVER.start(argv, variables, (nothing, output_end, errors_end))
    for descriptor in (nothing, output_end, errors_end):
        os.close(descriptor)
    with ended, ended.makefile("r") as answers, ThreadPoolExecutor(2) as readers:
        pid = int(answers.readline())
        texts = [readers.submit(_read_all, descriptor) for descriptor in (output, errors)]
        ended.settimeout(PATIENCE_SECONDS)
        try:
            code = int(answers.read())
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired([GPUMON, *argv], PATIENCE_SECONDS) from None
        return subprocess.CompletedProcess(argv, code if code >= 0 else 128 - code, *(text.result() for text in texts))


def _read_all(descriptor: int) -> str:
    with open(descriptor) as file:
        return file.read()


def shell(script: str, *argv: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a shell script in which ``"$@"`` is gpumon with arguments."""
    return subprocess.run(
        ["sh", "-c", script, "sh", GPUMON, *argv],
        check=False,
        env={**env, "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


def is_one_line(text: str) -> bool:
    """Whether an error message is one line that starts with gpumon's name, as all are except usage errors."""
    return text.count("\n") == 1 and text.startswith("gpumon: ") and text.endswith("\n")
