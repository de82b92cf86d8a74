"""`gpumon results`: saved results of workloads, over days and hosts."""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from gpumon.cli.options import debug_option, options
from gpumon.cli.output import plot_width, print_json, terminal_width
from gpumon.cli.shell_support import complete_workload
from gpumon.core.problems import CommandError, ProblemCode
from gpumon.core.text import safe_text

if TYPE_CHECKING:
    from gpumon.operations.results import ResultGroup

_SCHEMA: Final = 1
_RECORD_COLUMNS: Final = ("time_seconds", "host", "device_name", "driver", "torch", "verdict")


@click.command(short_help="List saved results, or the history of one workload.")
@click.argument("name", required=False, shell_complete=complete_workload)
@options("results")
@options("plot")
@debug_option
def results(  # noqa: PLR0917 - click passes them by name
    name: str | None, device: str, host: str, since: str | None, as_json: bool, as_csv: bool, plot: bool | None
) -> None:
    """List the newest saved result of each workload, device and set of parameters, or the history of NAME.

    The history compares each result with the previous one of the same device, and hosts that have the same GPU.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other.")
    from gpumon.operations.export import parse_since
    from gpumon.operations.results import ResultFilter, read_history

    groups = read_history(ResultFilter(name or "", device, host, parse_since(since)), time.time())
    if name is not None and not groups:
        _check_name(name)
    if as_json:
        document = {"schema": _SCHEMA, **(_overview_document(groups) if name is None else _history_document(groups))}
        print_json(document)
    elif as_csv:
        _print_csv(groups)
    elif not groups:
        click.echo("No saved result matches. Each gpumon run saves one.", err=True)
    else:
        click.echo("\n".join(_text_lines(groups, name, plot)))


def _text_lines(groups: "Sequence[ResultGroup]", name: str | None, plot: bool | None) -> list[str]:
    from gpumon.present.text.results import history_lines, overview_lines

    if name is None:
        return overview_lines(groups, terminal_width())
    return history_lines(groups, terminal_width(), plot_width(plot))


def _check_name(name: str) -> None:
    """Raises if a name is not that of a workload, so that an empty history is not taken for one.

    Raises:
        CommandError: There is no such workload, and no result of it.
    """
    from gpumon.workload_runs.catalogue import workload_names

    names = workload_names()
    if name not in names:
        reason = f"There is no workload and no saved result {safe_text(name, 60)!r}."
        raise CommandError.usage(ProblemCode.NOT_FOUND, reason, f"Workloads: {', '.join(names)}.")


def _overview_document(groups: "Sequence[ResultGroup]") -> dict[str, Any]:
    return {
        "groups": [
            {
                "workload": group.workload,
                "device_name": group.device_name,
                "parameters": dict(group.parameters),
                "runs": len(group.results),
                "hosts": group.hosts,
                "newest": _result_document(group, 0),
            }
            for group in groups
        ]
    }


def _history_document(groups: "Sequence[ResultGroup]") -> dict[str, Any]:
    """Every result, those of one device and set of parameters together, newest first."""
    return {"results": [_result_document(group, index) for group in groups for index in range(len(group.results))]}


def _result_document(group: "ResultGroup", index: int) -> dict[str, Any]:
    result, changes = group.results[index]
    record = {name: value for name, value in result.record.items() if name != "schema"}
    return {**record, "changes": [change.document() for change in changes]}


def _print_csv(groups: "Sequence[ResultGroup]") -> None:
    from gpumon.operations.csv_table import FIGURE_COLUMNS, figure_rows, write_rows

    write_rows([(*_RECORD_COLUMNS, *FIGURE_COLUMNS)], sys.stdout)
    for group in groups:
        for result, _ in group.results:
            head = [result.record.get(name) for name in _RECORD_COLUMNS]
            write_rows(([*head, *row] for row in figure_rows(result.record)), sys.stdout)
