"""`gpumon attach`: loads the probe into a running training job."""

import os
from typing import TYPE_CHECKING, Final

import click

from gpumon.cli.options import NumberRange, debug_option
from gpumon.core.problems import ExitCode

if TYPE_CHECKING:
    from gpumon.probe.attach import Attached

_TIMEOUT_SECONDS: Final = 10.0
_MAX_SECONDS: Final = 3600.0


@click.command(short_help="Load the probe into a running process.")
@click.argument("pid", type=click.IntRange(1))
@click.option(
    "--timeout",
    type=NumberRange(0, _MAX_SECONDS),
    default=_TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
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
