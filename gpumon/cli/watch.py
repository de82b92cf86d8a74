"""`gpumon watch` and `gpumon attach`: the probe in the PyTorch processes of a command, or in a running process."""

import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click

from gpumon.cli.options import Seconds, debug_option
from gpumon.core.problems import CommandError, ExitCode, ProblemCode
from gpumon.core.text import safe_text

if TYPE_CHECKING:
    from gpumon.probe.attach import Attached

SITE: Final = Path(__file__).parents[1] / "probe" / "site"
"""The folder with the ``sitecustomize`` that Python imports at its start."""
RECORDER_SIZE: Final = "2000"
"""Entries of the flight recorder: PyTorch's default since 2.13."""
_RECORDER_VARIABLES: Final = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""Set its size since PyTorch 2.8, and before; a newer PyTorch calls the older name deprecated, on stderr."""
_TIMEOUT_SECONDS: Final = 10.0
_MAX_SECONDS: Final = 3600.0
_IGNORED_BY_PYTHON: Final = ("SIGPIPE", "SIGXFZ", "SIGXFSZ")


@click.command(
    short_help="Run a command with the memory probe.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--no-flight-recorder", is_flag=True, help="Leave PyTorch's flight recorder as it is.")
@debug_option
def watch(command: tuple[str, ...], no_flight_recorder: bool) -> NoReturn:
    """Run COMMAND in place of gpumon, with the probe in every PyTorch process, including child processes and workers.

    For example: gpumon watch -- torchrun --nproc-per-node 8 train.py

    With the probe, the Memory screen of any gpumon on this host shows the memory of the PyTorch allocator. When memory
    runs out, the probe writes a file that "gpumon explain --oom" reads. The probe starts with the first CUDA context of
    a process. Signals, output and exit code are those of the command. python -I and -E disable the probe.

    PyTorch's flight recorder, which shows why a distributed job hangs, is turned on where it is off: watch sets
    TORCH_FR_BUFFER_SIZE=2000 unless the environment has a size.
    """
    program = shutil.which(command[0])
    if program is None:
        reason = f"Command not found: {safe_text(command[0], 200)}."
        raise CommandError.missing(ProblemCode.NOT_FOUND, reason, "Check the name of the command and PATH.")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for name in _IGNORED_BY_PYTHON:
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, command, watched_environment(os.environ, has_recorder=not no_flight_recorder))  # noqa: S606 - the command needs no shell
    except OSError as error:
        reason = f"{safe_text(program, 200)} cannot be run: {error.strerror}."
        raise CommandError.missing(
            ProblemCode.NOT_FOUND, reason, "The first line of a script must name its interpreter."
        ) from None


def watched_environment(environment: Mapping[str, str], *, has_recorder: bool = True) -> dict[str, str]:
    """The environment in which every Python starts with the probe.

    Args:
        environment: The environment of gpumon.
        has_recorder: Whether to set the size of PyTorch's flight recorder, if the environment does not.
    """
    path = environment.get("PYTHONPATH")
    others = (
        [folder for folder in path.split(os.pathsep) if folder != str(SITE)] if path else []
    )  # an empty entry is kept
    is_set = not has_recorder or any(name in environment for name in _RECORDER_VARIABLES)
    recorder = {} if is_set else {_RECORDER_VARIABLES[0]: RECORDER_SIZE}
    return {**environment, **recorder, "PYTHONPATH": os.pathsep.join([str(SITE), *others])}


@click.command(short_help="Load the probe into a running process.")
@click.argument("pid", type=click.IntRange(1))
@click.option(
    "--timeout",
    type=Seconds(0, _MAX_SECONDS),
    default=_TIMEOUT_SECONDS,
    show_default=True,
    metavar="DURATION",
    help="How long to wait for the probe to answer.",
)
@debug_option
def attach(pid: int, timeout: float) -> int:
    """Load the probe into the running process PID, so that gpumon shows the GPU memory of its PyTorch allocator.

    The process must run Python 3.14 or later, and continues as before. With an older Python, start the process with
    gpumon watch instead.

    Exits with 0 if the probe answers, 1 if it does not answer yet, 3 if it cannot be loaded.
    """
    from gpumon.probe.attach import attach as load

    if pid == os.getpid():
        raise click.UsageError(f"PID {pid} is gpumon itself.")
    click.echo(_text(load(pid, timeout)))
    return ExitCode.OK


def _text(attached: "Attached") -> str:
    """The result, and what to do next."""
    target = attached.target
    runs = "already runs" if attached.was_there else "runs"
    return f"The probe {runs} in {target.name}.\n{_next_step(attached)}"


def _next_step(attached: "Attached") -> str:
    from gpumon.probe.socket_dir import candidates

    if attached.target.is_foreign:
        return "Open gpumon as the user of that process and press m."
    if attached.folder is None:
        return "The probe does not listen. It waits for the first CUDA context of the process, or has failed."
    if attached.folder not in candidates():
        return f"Open gpumon with GPUMON_PROBE_DIR={attached.folder} and press m."
    return "Open gpumon and press m."
