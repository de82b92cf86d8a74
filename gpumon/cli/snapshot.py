"""`gpumon snapshot`: what PyTorch's allocator held, when, and who had asked for it."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gpumon.cli.options import debug_option, screen_options
from gpumon.core.exits import ExitCode
from gpumon.core.text import safe_text

if TYPE_CHECKING:
    from gpumon.snapshots.model import Snapshot

_WIDTH: Final = 110
_TOP: Final = 20
_MOST: Final = 10_000


@click.command(short_help="Open a memory snapshot of PyTorch.")
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("file2", type=click.Path(path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, envvar="GPUMON_SNAPSHOT_JSON", help="One JSON document.")
@click.option(
    "--top",
    type=click.IntRange(1, _MOST),
    default=_TOP,
    show_default=True,
    envvar="GPUMON_SNAPSHOT_TOP",
    help="So many stacks in text and in JSON; the screen has them all.",
)
@click.option(
    "--perfetto",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the history to a new file for ui.perfetto.dev: the course, and the 20,000 largest allocations.",
)
@screen_options
@debug_option
def snapshot(  # noqa: PLR0917 - click passes them by name
    file: Path, file2: Path | None, as_json: bool, top: int, perfetto: Path | None, theme: str, mouse: bool
) -> int:
    """Open FILE, which torch.cuda.memory._dump_snapshot() wrote: who allocated what, and what was there at the peak.

    With FILE2 it opens that one, and shows what has changed since FILE. Files of gigabytes are read in little memory,
    compressed ones (.gz) as well, and nothing in them is ever run.

    Without a terminal, and with --json or --perfetto, there is no screen.
    """
    if as_json or perfetto is not None or not _has_screen():
        return _say(file, file2, as_json=as_json, top=top, perfetto=perfetto)
    return _show(file, file2, theme, mouse=mouse)


def _has_screen() -> bool:
    is_terminal = all(each is not None and each.isatty() for each in (sys.stdin, sys.stdout, sys.stderr))
    return is_terminal and os.environ.get("TERM", "") not in {"", "dumb"}


def _say(file: Path, file2: Path | None, *, as_json: bool, top: int, perfetto: Path | None) -> int:
    from gpumon.snapshots import perfetto as trace
    from gpumon.snapshots.reading import Reading, finished

    if perfetto is not None:
        trace.refuse_existing(perfetto)
    before = None if file2 is None else Reading(file)
    reading = Reading(file2 or file, trace.MOST_ALLOCATIONS if perfetto is not None else 0)  # both are there
    earlier = None if before is None else finished(before)
    found = finished(reading)
    if as_json:
        from gpumon.snapshots.documents import snapshot_document

        click.echo(json.dumps(snapshot_document(found, top, earlier), indent=2, ensure_ascii=False))
    elif perfetto is None:
        _say_text(found, top, earlier)
    if perfetto is not None:
        count = trace.save(found, perfetto)
        name = safe_text(str(perfetto), 200)
        click.echo(f"{name} is written, with {count:,} events. Open it in ui.perfetto.dev.", err=as_json)
    return ExitCode.OK


def _say_text(found: "Snapshot", top: int, earlier: "Snapshot | None") -> None:
    from gpumon.ui.paint.line import Role, plain
    from gpumon.ui.view.snapshot_report import report_lines

    width = min(max(shutil.get_terminal_size((_WIDTH, 40)).columns, 60), 160)
    for each in report_lines(found, top, width, earlier):
        click.secho(plain(each).rstrip(), bold=bool(each) and each[0].role is Role.HEADING)


def _show(file: Path, file2: Path | None, theme: str, *, mouse: bool) -> int:
    from gpumon.ui import terminal

    terminal.require()
    terminal.frugal()
    from gpumon.ui.snapshot_app import run

    return run(file, file2, theme, mouse=mouse)
