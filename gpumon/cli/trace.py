"""`gpumon trace`: where the time of a training step goes, from a trace of torch.profiler or Kineto."""

import json
import shutil
from pathlib import Path
from typing import Final

import click

from gpumon.cli.group import appearance
from gpumon.cli.options import debug_option, screen_options
from gpumon.cli.snapshot import has_screen
from gpumon.core.problems import ExitCode

_DEFAULT_WIDTH: Final = 110
_DEFAULT_TOP: Final = 10
_MAX_TOP: Final = 2_000


@click.command(short_help="Account for the time of a training step.")
@click.argument("files", type=click.Path(path_type=Path), metavar="FILE...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, envvar="GPUMON_TRACE_JSON", help="Print one JSON document.")
@click.option(
    "--top",
    type=click.IntRange(1, _MAX_TOP),
    default=_DEFAULT_TOP,
    show_default=True,
    envvar="GPUMON_TRACE_TOP",
    help="Number of kernels and gaps in text and JSON output. The screen shows all of them.",
)
@screen_options
@debug_option
def trace(files: tuple[Path, ...], as_json: bool, top: int, theme: str, mouse: bool) -> int:
    """Account for the median step in FILE, a Chrome trace of torch.profiler or Kineto; FILE may be compressed.

    Every microsecond of the step belongs to one class: kinds of compute, communication, copies, and the reasons why
    the GPU did nothing. Several files are the ranks of one job: the slowest one is named.

    Without a terminal, or with --json, the command prints its output and opens no screen.
    """
    if as_json or not has_screen():
        return _print(files, as_json=as_json, top=top)
    from gpumon.ui import terminal

    terminal.require()
    terminal.set_textual_defaults()
    from gpumon.ui.trace_app import run

    return run(files, theme, appearance().palettes(), mouse=mouse)


def _print(files: tuple[Path, ...], *, as_json: bool, top: int) -> int:
    from gpumon.core.file_reader import read_to_end
    from gpumon.traces.reader import TraceReader

    readers = [TraceReader(file) for file in files]  # opens all files before it reads the first one
    traces = []
    for reader in readers:
        traces.append(read_to_end(reader).trace)
        reader.close()
    if as_json:
        from gpumon.traces.documents import traces_document

        click.echo(json.dumps(traces_document(traces, top), indent=2, ensure_ascii=False))
        return ExitCode.OK
    from gpumon.present.paint.line import Role, plain
    from gpumon.present.trace_report import report_lines

    width = min(max(shutil.get_terminal_size((_DEFAULT_WIDTH, 40)).columns, 60), 160)
    for line in report_lines(traces, top, width):
        click.secho(plain(line).rstrip(), bold=bool(line) and line[0].role is Role.HEADING)
    return ExitCode.OK
