"""`gpumon doctor`: is this host ready for PyTorch?"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gpumon.cli.options import debug_option, options
from gpumon.cli.output import print_json, report_width
from gpumon.core.problems import ExitCode

if TYPE_CHECKING:
    from gpumon.health.checks import Check
    from gpumon.operations.doctor.examination import Examination

_DEFAULT_WIDTH: Final = 110
_PROGRESS_SECONDS: Final = 0.5


@click.command(short_help="Check whether this host is ready for PyTorch.")
@options("doctor")
@debug_option
def doctor(as_json: bool, bundle: Path | None, python: str | None) -> int:
    """Check the driver, GPUs, host, environment, and the PyTorch of each Python, and show how to fix problems.

    Takes at most 45 seconds, even if the driver hangs. Exits with 0, or with 1 if a check failed.
    """
    from gpumon.health.checks import Status, document, verdict
    from gpumon.operations.doctor.bundle import refuse_existing, save_bundle
    from gpumon.operations.doctor.examination import DoctorOptions, Examination

    if bundle is not None:
        refuse_existing(bundle)
    examination = Examination(DoctorOptions(python=python))
    try:
        examination.start()
        checks = _wait_with_progress(examination)
        if as_json:
            print_json(document(checks))
        else:
            click.echo(_text(checks))
        if bundle is not None:
            removed = save_bundle(bundle, examination)
            click.echo(f"\nWrote {bundle}. {removed}\nRead the file before you share it.", err=as_json)
    finally:
        examination.close()
    return ExitCode.BAD_VERDICT if verdict(checks) is Status.FAIL else ExitCode.OK


def _wait_with_progress(examination: "Examination") -> "list[Check]":
    """Waits for the end, and shows the progress if standard error is a terminal."""
    progress = ""
    while not examination.is_over:
        examination.inbox.arrived.wait(_PROGRESS_SECONDS)
        examination.inbox.drain()
        if sys.stderr.isatty():
            progress = f"{len(examination.checks)} checks done ..."
            click.echo(f"\r{progress}", nl=False, err=True)
    if progress:
        click.echo(f"\r{' ' * len(progress)}\r", nl=False, err=True)
    return examination.wait()


def _text(checks: "list[Check]") -> str:
    from gpumon.present.doctor import doctor_rows, summary
    from gpumon.present.paint.line import plain

    width = report_width(_DEFAULT_WIDTH, 160)
    lines = [plain(row.line).rstrip() for row in doctor_rows(checks, width, is_over=True)]
    return "\n".join([*lines, "", summary(checks)])
