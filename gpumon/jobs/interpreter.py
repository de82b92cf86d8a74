"""With which Python a workload runs: the user's training interpreter, in which gpumon need not be installed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

_ASK: Final = (
    "import importlib.util, sys; torch = importlib.util.find_spec('torch'); "
    "print('python', sys.version_info >= (3, 9), getattr(torch, 'origin', None) is not None)"
)
"""A mere folder called torch, as of data, is a namespace package to Python: it has no origin."""
_PATIENCE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that has torch.

    Attributes:
        path: The program.
        found_in: How gpumon came to it.
    """

    path: Path
    found_in: str


def find_interpreter(asked: str | None = None, environment: Mapping[str, str] | None = None) -> Interpreter:
    """The interpreter that runs workloads; torch itself is never imported to find out.

    Args:
        asked: What the user named with ``--python``, a path or a program on PATH; then nothing else is tried.
        environment: Variables to look in; this process's if None.

    Raises:
        CommandError: There is none with torch, or what was asked for is no Python.
    """
    variables = os.environ if environment is None else environment
    if asked is not None:
        return _asked_for(asked)
    tried: dict[Path, str] = {}
    for path, found_in in _candidates(variables):
        if path in tried:
            continue
        tried[path] = found_in
        if _answer(path) == ["python", "True", "True"]:
            return Interpreter(path, found_in)
    looked = "; ".join(f"{safe_text(str(path), 120)} ({found_in})" for path, found_in in tried.items())
    raise CommandError(
        Problem(
            ProblemCode.NO_TORCH,
            f"No Python with torch was found. Looked at: {looked}.",
            "Name the interpreter of your training environment with --python, or activate that environment first.",
        ),
        ExitCode.NOT_THERE,
    )


def every_interpreter(asked: str | None = None, environment: Mapping[str, str] | None = None) -> list[Interpreter]:
    """Every place where an interpreter is looked for, asked nothing yet; two names of one program count as one.

    Args:
        asked: What the user named with ``--python``; then it is the only one.
        environment: Variables to look in; this process's if None.

    Raises:
        CommandError: There is no such program.
    """
    if asked is not None:
        return [Interpreter(_program(asked), "--python")]
    found: dict[tuple[Path, Path], Interpreter] = {}
    for path, found_in in _candidates(os.environ if environment is None else environment):
        found.setdefault((path.parent, path.resolve()), Interpreter(path, found_in))
    return list(found.values())


def _program(asked: str) -> Path:
    found = shutil.which(asked)
    if found is None:
        raise CommandError(
            Problem(ProblemCode.NOT_FOUND, f"There is no program {safe_text(asked, 200)}.", "Look at --python."),
            ExitCode.USAGE,
        )
    return Path(found).absolute()  # not resolved: a virtual environment's python is a link, and the link is what counts


def _asked_for(asked: str) -> Interpreter:
    path = _program(asked)
    answer = _answer(path)
    if answer is None or answer[0] != "python":
        raise CommandError(
            Problem(ProblemCode.NOT_SUPPORTED, f"{safe_text(str(path), 200)} is not Python.", "Look at --python."),
            ExitCode.USAGE,
        )
    if answer[1] != "True":
        raise CommandError(
            Problem(
                ProblemCode.NOT_SUPPORTED,
                f"{safe_text(str(path), 200)} is older than Python 3.9.",
                "Name a newer one with --python.",
            ),
            ExitCode.NOT_THERE,
        )
    if answer[2] != "True":
        raise CommandError(
            Problem(
                ProblemCode.NO_TORCH,
                f"{safe_text(str(path), 200)} has no torch.",
                "Install torch there, or name another interpreter with --python.",
            ),
            ExitCode.NOT_THERE,
        )
    return Interpreter(path, "--python")


def _candidates(variables: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    yield Path(sys.executable), "gpumon's own environment"
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if variables.get(name):
            yield Path(variables[name]) / "bin" / "python", name
    for program in ("python3", "python"):
        found = shutil.which(program, path=variables.get("PATH"))
        if found is not None:
            yield Path(found).absolute(), "PATH"


def _answer(path: Path) -> list[str] | None:
    """What a program says when it is asked as if it were Python; None if it cannot be asked."""
    try:
        done = subprocess.run(
            [str(path), "-c", _ASK],
            capture_output=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd="/",  # a folder called torch in the user's working directory is not torch
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.decode(errors="replace").splitlines()
    words = lines[-1].split() if lines else []
    return words if done.returncode == 0 and len(words) == 3 else None
