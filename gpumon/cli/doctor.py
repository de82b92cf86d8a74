"""`gpumon doctor`: is this machine fit for PyTorch?"""

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gpumon.cli.options import debug_option
from gpumon.core.exits import ExitCode

if TYPE_CHECKING:
    from gpumon.diagnosis.checks import Check
    from gpumon.operations.doctor.examination import Examination

_WIDTH: Final = 110
_LOOK_SECONDS: Final = 0.5


@click.command(short_help="Check whether this machine is fit for PyTorch.")
@click.option("--json", "as_json", is_flag=True, envvar="GPUMON_DOCTOR_JSON", help="One JSON document.")
@click.option(
    "--bundle",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write all that was found to a new file for somebody else, without names, addresses and secrets.",
)
@click.option("--python", metavar="PATH", help="The interpreter to ask about torch; else every one that can be found.")
@debug_option
def doctor(as_json: bool, bundle: Path | None, python: str | None) -> int:
    """Check driver, GPUs, machine, environment and the torch of each Python, and say how to mend what is wrong.

    Ends within 45 seconds whatever hangs, and exits 0 or 1.
    """
    from gpumon.diagnosis.checks import Status, document, verdict
    from gpumon.operations.doctor.bundle import refuse_existing, save_bundle
    from gpumon.operations.doctor.examination import Examination, Wish

    if bundle is not None:
        refuse_existing(bundle)
    examination = Examination(Wish(python=python))
    try:
        examination.start()
        checks = _followed(examination)
        click.echo(json.dumps(document(checks), indent=2, ensure_ascii=False) if as_json else _text(checks))
        if bundle is not None:
            removed = save_bundle(bundle, examination)
            click.echo(f"\n{bundle} is written. {removed}\nRead it before you hand it on.", err=as_json)
    finally:
        examination.close()
    return ExitCode.BAD_VERDICT if verdict(checks) is Status.FAIL else ExitCode.OK


def _followed(examination: "Examination") -> "list[Check]":
    """Waits for the end; on a terminal, says how far it is."""
    told = ""
    while not examination.is_over:
        examination.inbox.arrived.wait(_LOOK_SECONDS)
        examination.inbox.drain()
        if sys.stderr.isatty():
            told = f"{len(examination.checks)} checks made ..."
            click.echo(f"\r{told}", nl=False, err=True)
    if told:
        click.echo(f"\r{' ' * len(told)}\r", nl=False, err=True)
    return examination.wait()


def _text(checks: "list[Check]") -> str:
    from gpumon.ui.paint.line import plain
    from gpumon.ui.view.doctor import doctor_rows, summary

    width = min(max(shutil.get_terminal_size((_WIDTH, 40)).columns, 60), 160)
    lines = [plain(row.line).rstrip() for row in doctor_rows(checks, width, is_over=True)]
    return "\n".join([*lines, "", summary(checks)])
