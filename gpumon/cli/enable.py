"""`gpumon enable` and `gpumon disable`: the probe in every later training run of this user."""

import os
import shutil
import sys
from pathlib import Path

import click

from gpumon.cli.options import debug_option, options
from gpumon.core.problems import ExitCode

_PYTHON_HELP = "The interpreter of the environment, instead of that of the active environment or PATH."


@click.command(short_help="Load the probe into every later training run.")
@click.option("--python", metavar="PROGRAM", help=_PYTHON_HELP)
@options("enable")
@debug_option
def enable(python: str | None, shell: bool, status: bool) -> int:
    """Have every PyTorch process that you start later carry the probe, so that nothing has to be attached.

    Writes one file into the packages of an environment, or with --shell one line into ~/.bashrc or ~/.zshrc. Programs
    of other users, and programs that do not import torch, stay as they are. GPUMON_PROBE=0 disables it for one program,
    and "gpumon disable" removes it.
    """
    from gpumon.probe.enabling import enable_python, enable_shell, enabled_files, enabled_profiles

    program = _program(python)
    if status:
        paths = [*enabled_files(program), *enabled_profiles()]
        for path in paths:
            click.echo(f"enabled: {path}")
        if not paths:
            click.echo(f"Not enabled for {program}, nor in a shell.")
        return ExitCode.OK if paths else ExitCode.BAD_VERDICT
    if shell:
        path = enable_shell(os.environ.get("SHELL", "bash"))
        click.echo(f"Enabled in {path}: shells that you open from now on start programs with the probe.")
    else:
        path = enable_python(program)
        click.echo(f"Enabled in {path}: PyTorch programs of {program} that you start from now on carry the probe.")
    click.echo("gpumon disable removes it.")
    return ExitCode.OK


@click.command(short_help="Undo gpumon enable.")
@click.option("--python", metavar="PROGRAM", help=_PYTHON_HELP)
@debug_option
def disable(python: str | None) -> int:
    """Remove what "gpumon enable" has written, for one interpreter and for all shells.

    A program that runs already keeps its probe; "gpumon attach --detach PID" ends it.
    """
    from gpumon.probe.enabling import disable as remove

    program = _program(python)
    paths = list(remove(program))
    for path in paths:
        click.echo(f"Removed from {path}.")
    if not paths:
        click.echo(f"Not enabled for {program}, nor in a shell.")
    return ExitCode.OK


def _program(python: str | None) -> str:
    """The interpreter that is meant."""
    if python is not None:
        return python
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if os.environ.get(name):
            return str(Path(os.environ[name]) / "bin" / "python")
    return shutil.which("python3") or sys.executable
