"""How commands print: JSON documents, lines of reports, and the width that these have."""

import shutil
import sys
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

import click

from gpumon.core.json_text import json_document

if TYPE_CHECKING:
    from gpumon.core.file_reader import FileReader, Progress, ResultT
    from gpumon.present.paint.line import Line, Role

_MIN_WIDTH: Final = 60
_PLOT_WIDTH: Final = 100
"""Width of plots in cells where there is no terminal."""


def print_json(document: object) -> None:
    """Print a JSON document."""
    click.echo(json_document(document))


def read_shown(reader: "FileReader[ResultT]") -> "ResultT":
    """Read a file, and show the progress if standard error is a terminal.

    Raises:
        CommandError: The file cannot be read.
    """
    from gpumon.core.file_reader import read_to_end

    def show(progress: "Progress") -> None:
        share = progress.read_bytes / max(progress.size_bytes, 1)
        step = f"{share:.0%} read" if share < 1 else "evaluating"
        click.echo(f"\r\x1b[K{step} ...", nl=False, err=True)

    if not sys.stderr.isatty():
        return read_to_end(reader)
    try:
        return read_to_end(reader, show)
    finally:
        click.echo("\r\x1b[K", nl=False, err=True)


def print_lines(lines: "Iterable[Line]", bold: "Collection[Role]" = ()) -> None:
    """Print lines; those that begin with one of the roles in ``bold`` are bold on a terminal."""
    from gpumon.present.paint.line import plain

    for line in lines:
        click.secho(plain(line).rstrip(), bold=bool(line) and line[0].role in bold)


def report_width(default: int, maximum: int | None = None) -> int:
    """Cells of a line of a report, at least 60.

    Args:
        default: Without a terminal.
        maximum: Longer lines are hard to read; None for the default.
    """
    return min(max(shutil.get_terminal_size((default, 40)).columns, _MIN_WIDTH), maximum or default)


def terminal_width() -> int:
    """Cells of a line of the terminal, or 0 if standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def plot_width(plot: bool | None) -> int:
    """Cells of a line of the plots; 0 for no plots.

    Args:
        plot: Whether to draw plots; None for only on a terminal.
    """
    return 0 if plot is False else terminal_width() or (_PLOT_WIDTH if plot else 0)
