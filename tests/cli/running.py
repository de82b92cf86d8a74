"""Runs gpumon as a shell does. A test module that imports this one is skipped where gpumon is not installed."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

PATIENCE_SECONDS: Final = 100.0
"""Longer than the selftest's own deadline, which names the check that hangs."""


def _installed_gpumon() -> str:
    """The path of the entry point: that of this interpreter, else the one on PATH."""
    path = shutil.which("gpumon", path=str(Path(sys.executable).parent)) or shutil.which("gpumon")
    if path is None:
        pytest.skip("needs gpumon installed: pip install -e .", allow_module_level=True)
    return path


GPUMON: Final = _installed_gpumon()


def run(*argv: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run gpumon without a terminal; an exit code above 128 stands for a signal, as in a shell."""
    return shell('"$@"', *argv, env=env)


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
