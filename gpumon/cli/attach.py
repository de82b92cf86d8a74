"""`gpumon attach`: loads the probe into a training that runs already."""

import os
from typing import TYPE_CHECKING, Final

import click

from gpumon.cli.options import NumberRange, debug_option
from gpumon.core.exits import ExitCode

if TYPE_CHECKING:
    from gpumon.probe.attach import Attached

_TIMEOUT_SECONDS: Final = 10.0
_MOST_SECONDS: Final = 3600.0


@click.command(short_help="Load the probe into a process that runs already.")
@click.argument("pid", type=click.IntRange(1))
@click.option(
    "--timeout",
    type=NumberRange(0, _MOST_SECONDS),
    default=_TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until the probe answers.",
)
@debug_option
def attach(pid: int, timeout: float) -> int:
    """Load the probe into the running process PID, which shows where its PyTorch's GPU memory is.

    It needs Python 3.14 or later in that process, whose code goes on as before. A process of an older Python has to be
    started by gpumon watch.

    Exits with 0 if the probe answers, with 1 if it does not do so yet, with 3 if it cannot be loaded.
    """
    from gpumon.probe.attach import attach as load

    if pid == os.getpid():
        raise click.UsageError(f"{pid} is gpumon itself.")
    click.echo(_text(load(pid, timeout)))
    return ExitCode.OK


def _text(attached: "Attached") -> str:
    """What has come about, and what to do next."""
    target = attached.target
    done = f"There is a probe already in {target.name}." if attached.was_there else f"The probe runs in {target.name}."
    return f"{done}\n{_next(attached)}"


def _next(attached: "Attached") -> str:
    from gpumon.probe.folder import candidates

    if attached.target.is_foreign:
        return "Open gpumon as the user of that process and press m."
    if attached.folder is None:
        return "It does not listen: it does from the first CUDA context on, or it has failed."
    if attached.folder not in candidates():
        return f"Open gpumon with GPUMON_PROBE_DIR={attached.folder} and press m."
    return "Open gpumon and press m."
