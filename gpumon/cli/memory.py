"""`gpumon memory`: the memory of each GPU, which process holds it for what, and what would free it."""

import json
import shutil
from typing import Final

import click

from gpumon.cli.options import debug_option, json_option
from gpumon.core.problems import CommandError, ExitCode

_MIN_WIDTH: Final = 60
_MAX_WIDTH: Final = 100


@click.command(short_help="Show what the memory of each GPU is used for.")
@json_option("memory")
@debug_option
def memory(as_json: bool) -> None:
    """Print the memory of each GPU: which process holds it, for what, and what would free it.

    The parts inside a process are known only if the process has a probe; gpumon watch starts a program with one.
    """
    from gpumon.operations.one_shot import sample_with_probes

    sample = sample_with_probes()
    if as_json:
        from gpumon.operations.memory_document import memory_document

        click.echo(json.dumps(memory_document(*sample), indent=2, ensure_ascii=False))
    elif sample.frame.devices:
        from gpumon.present.text.memory import memory_report_lines

        width = min(max(shutil.get_terminal_size((_MAX_WIDTH, 40)).columns, _MIN_WIDTH), _MAX_WIDTH)
        click.echo("\n".join(memory_report_lines(sample, width)))
    problem = sample.frame.problems.get("driver")
    if problem is not None:
        raise CommandError(problem, ExitCode.MISSING_PREREQUISITE)
