"""`gpumon topology`: how the GPUs are connected, and what is wrong with it."""

import json
import shutil
from typing import Final

import click

from gpumon.cli.options import debug_option, json_option
from gpumon.core.problems import CommandError, ExitCode

_MIN_WIDTH: Final = 60
_MAX_WIDTH: Final = 120


@click.command(short_help="Show how the GPUs are connected.")
@json_option("topology", "Print one JSON document; missing values are null, with the reason.")
@debug_option
def topology(as_json: bool) -> None:
    """Print how the GPUs are connected to each other, to the processors and to the network cards, and what is wrong.

    The matrix uses the words of nvidia-smi topo -m. The rates of the NVLinks are those of half a second.
    """
    from gpumon.core.topology import to_document
    from gpumon.operations.topology import read_topology_with_rates

    connections = read_topology_with_rates()
    if as_json:
        from gpumon.health.topology import topology_findings

        document = {**to_document(connections), "findings": list(topology_findings(connections))}
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    elif connections.gpus:
        from gpumon.present.paint.line import plain
        from gpumon.present.topology import topology_lines

        width = min(max(shutil.get_terminal_size((_MAX_WIDTH, 40)).columns, _MIN_WIDTH), _MAX_WIDTH)
        click.echo("\n".join(plain(text).rstrip() for text in topology_lines(connections, width)))
    problem = connections.problems.get("driver")
    if problem is not None:
        raise CommandError(problem, ExitCode.MISSING_PREREQUISITE)
