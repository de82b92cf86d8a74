"""gpumon as a shell runs it."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

GPUMON: Final = str(Path(sys.executable).with_name("gpumon"))
PATIENCE_SECONDS: Final = 30.0


def run(*argv: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs gpumon without any terminal; an exit code above 128 stands for a signal, as in a shell."""
    return shell('"$@"', *argv, env=env)


def shell(script: str, *argv: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a shell script in which ``"$@"`` is gpumon with arguments."""
    return subprocess.run(
        ["sh", "-c", script, "sh", GPUMON, *argv],
        check=False,
        env={**env, "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )


def is_one_line(said: str) -> bool:
    """Whether an error is one line in gpumon's name, as every one is but those of usage."""
    return said.count("\n") == 1 and said.startswith("gpumon: ") and said.endswith("\n")
