"""The Python interpreter that runs workloads: that of the training environment, which needs no gpumon."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumon.core.ownership import root_ownership_problem
from gpumon.core.problems import CommandError, Problem, ProblemCode
from gpumon.core.text import safe_text

_CHECK_TORCH: Final = (
    "import importlib.util, sys; torch = importlib.util.find_spec('torch'); "
    "print('python', sys.version_info >= (3, 9), getattr(torch, 'origin', None) is not None)"
)
"""A plain folder called torch, for example with data, is a namespace package, which has no origin."""
_TIMEOUT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python interpreter.

    Attributes:
        path: Path of the program.
        found_in: Where gpumon found the program, such as ``PATH`` or ``VIRTUAL_ENV``.
        refusal: Why gpumon does not run the program; None if it does.
    """

    path: Path
    found_in: str
    refusal: Problem | None = None


def find_interpreter(requested: str | None = None, environment: Mapping[str, str] | None = None) -> Interpreter:
    """Find the interpreter that runs workloads, without importing torch.

    Args:
        requested: The user's ``--python``, a path or a program on PATH; if given, nothing else is tried.
        environment: Environment variables; those of this process if None.

    Raises:
        CommandError: No interpreter has torch, or the requested program is not Python.
    """
    variables = os.environ if environment is None else environment
    if requested is not None:
        return _requested_interpreter(requested)
    tried: dict[Path, Interpreter] = {}
    for candidate in _candidates(variables):
        if candidate.path in tried:
            continue
        tried[candidate.path] = candidate
        if candidate.refusal is None and _check(candidate.path) == ["python", "True", "True"]:
            return candidate
    checked = "; ".join(map(_description, tried.values()))
    raise CommandError.missing(
        ProblemCode.NO_TORCH,
        f"No Python with torch was found. Checked: {checked}.",
        "Set --python to the interpreter of your training environment, or activate that environment first.",
    )


def every_interpreter(requested: str | None = None, environment: Mapping[str, str] | None = None) -> list[Interpreter]:
    """List every candidate without running any; two names of one program count as one.

    Args:
        requested: The user's ``--python``; if given, the only candidate.
        environment: Environment variables; those of this process if None.

    Raises:
        CommandError: The requested program does not exist.
    """
    if requested is not None:
        return [Interpreter(_program(requested), "--python")]
    interpreters: dict[tuple[Path, Path], Interpreter] = {}
    for candidate in _candidates(os.environ if environment is None else environment):
        interpreters.setdefault((candidate.path.parent, candidate.path.resolve()), candidate)
    return list(interpreters.values())


def _program(requested: str) -> Path:
    program = shutil.which(requested)
    if program is None:
        raise CommandError.usage(
            ProblemCode.NOT_FOUND, f"There is no program {safe_text(requested, 200)}.", "Check --python."
        )
    return Path(program).absolute()  # not resolved: the link in a virtual environment selects the environment


def _requested_interpreter(requested: str) -> Interpreter:
    path = _program(requested)
    answer = _check(path)
    if answer is None or answer[0] != "python":
        raise CommandError.usage(
            ProblemCode.NOT_SUPPORTED, f"{safe_text(str(path), 200)} is not Python.", "Check --python."
        )
    if answer[1] != "True":
        raise CommandError.missing(
            ProblemCode.NOT_SUPPORTED,
            f"{safe_text(str(path), 200)} is older than Python 3.9.",
            "Choose a newer interpreter with --python.",
        )
    if answer[2] != "True":
        raise CommandError.missing(
            ProblemCode.NO_TORCH,
            f"{safe_text(str(path), 200)} has no torch.",
            "Install torch there, or choose another interpreter with --python.",
        )
    return Interpreter(path, "--python")


def _candidates(variables: Mapping[str, str]) -> Iterator[Interpreter]:
    yield Interpreter(Path(sys.executable), "gpumon's own environment")  # already runs gpumon, whoever owns it
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if variables.get(name):
            yield _candidate(Path(variables[name]) / "bin" / "python", name)
    for program in ("python3", "python"):
        path = shutil.which(program, path=variables.get("PATH"))
        if path is not None:
            yield _candidate(Path(path), "PATH")


def _candidate(path: Path, found_in: str) -> Interpreter:
    """An interpreter that gpumon found; only one that is named with --python runs whoever owns it."""
    path = path.absolute()
    return Interpreter(path, found_in, root_ownership_problem(path))


def _description(interpreter: Interpreter) -> str:
    refusal = "" if interpreter.refusal is None else f"; not run: {interpreter.refusal.reason.rstrip('.')}"
    return f"{safe_text(str(interpreter.path), 120)} ({interpreter.found_in}{refusal})"


def python_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment variables for a Python that gpumon starts.

    Root imports nothing from the user site-packages folder of another user, which HOME may name.

    Args:
        environment: The variables to start from; those of this process if None.
    """
    variables = dict(os.environ if environment is None else environment)
    folder = variables.get("PYTHONUSERBASE") or str(Path(variables.get("HOME") or "/root", ".local"))
    if root_ownership_problem(Path(folder).absolute()) is not None:
        variables["PYTHONNOUSERSITE"] = "1"
    return variables


def _check(path: Path) -> list[str] | None:
    """Run a program as if it were Python; returns ``python``, is 3.9 or later, has torch, or None on failure."""
    try:
        result = subprocess.run(
            [str(path), "-c", _CHECK_TORCH],
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd="/",  # a folder called torch in the user's working directory is not PyTorch
            env=python_environment(),
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = result.stdout.decode(errors="replace").splitlines()
    words = lines[-1].split() if lines else []
    return words if result.returncode == 0 and len(words) == 3 else None
