"""`gpumon watch`: a command with the probe in every PyTorch process that it starts."""

import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NoReturn

import click

from gpumon.cli.options import debug_option
from gpumon.core.exits import CommandError, ExitCode
from gpumon.core.problems import Problem, ProblemCode
from gpumon.core.text import safe_text

SITE: Final = Path(__file__).parents[1] / "probe" / "site"
"""The folder whose ``sitecustomize`` Python runs at its start."""
_IGNORED_BY_PYTHON: Final = ("SIGPIPE", "SIGXFZ", "SIGXFSZ")


@click.command(
    short_help="Run a training so that its memory can be seen.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@debug_option
def watch(command: tuple[str, ...]) -> NoReturn:
    """Become COMMAND, with gpumon's probe in every PyTorch process that it starts, children and workers included.

    For example: gpumon watch -- torchrun --nproc-per-node 8 train.py

    The probe shows PyTorch's memory on the screen Memory of a gpumon on this machine, and leaves a file that
    "gpumon explain --oom" reads when memory runs out. It appears with the first CUDA context of a process. Signals,
    output and exit code are the command's own; python -I and -E keep the probe out.
    """
    program = shutil.which(command[0])
    if program is None:
        reason = f"There is no command {safe_text(command[0], 200)}."
        raise CommandError(Problem(ProblemCode.NOT_FOUND, reason, "Check its name and PATH."), ExitCode.NOT_THERE)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for name in _IGNORED_BY_PYTHON:
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, command, watched_environment(os.environ))  # noqa: S606 - no shell is wanted
    except OSError as error:
        reason = f"{safe_text(program, 200)} cannot be run: {error.strerror}."
        problem = Problem(ProblemCode.NOT_FOUND, reason, "A script needs a first line that names its interpreter.")
        raise CommandError(problem, ExitCode.NOT_THERE) from None


def watched_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which every Python starts with the probe."""
    found = environment.get("PYTHONPATH")
    others = [each for each in found.split(os.pathsep) if each != str(SITE)] if found else []  # "" is where it runs
    return {**environment, "PYTHONPATH": os.pathsep.join([str(SITE), *others])}
