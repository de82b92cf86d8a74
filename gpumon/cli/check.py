"""`gpumon check`: may this node take a job? With the exit codes of Nagios plugins."""

from enum import IntEnum
from typing import Any

import click

from gpumon.cli.options import debug_option, options
from gpumon.cli.output import print_json


class NagiosCode(IntEnum):
    """Exit codes of Nagios plugins, which schedulers and monitoring read: the exception to gpumon's own."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class NagiosCommand(click.Command):
    """A command that ends with `NagiosCode.UNKNOWN` when its options are wrong or it fails itself."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401
    ) -> click.Context:
        """Parse the options."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            click.echo(f"UNKNOWN - {error.format_message()}")
            raise click.exceptions.Exit(NagiosCode.UNKNOWN) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except Exception as error:  # noqa: BLE001 - a scheduler must not read a failure of the check as a warning
            click.echo(f"UNKNOWN - {type(error).__name__}: {error}")
            return int(NagiosCode.UNKNOWN)


@click.command(cls=NagiosCommand, short_help="Check whether this node may take a job.")
@options("check")
@debug_option
def check(  # noqa: PLR0917 - click passes them by name
    level: int,
    expect_gpus: int | None,
    expect_model: str,
    ignore: tuple[str, ...],
    force: bool,
    python: str | None,
    max_time: float,
    as_json: bool,
) -> int:
    """Check this node for a scheduler, a prolog or monitoring, and print one line.

    Level 1 starts nothing on a GPU and takes about a second; level 2 also starts CUDA and runs short workloads on GPUs
    that no process uses; level 3 also runs NCCL between them, and loads them until the time is over. Exits as Nagios
    plugins do: 0 OK, 1 warning, 2 critical, 3 unknown.
    """
    from gpumon.health.checks import Status, document, verdict
    from gpumon.health.doctor.facts import Expected
    from gpumon.operations.node_check import NodeOptions, check_node, known_ids, summary_line

    unknown = sorted(set(ignore) - known_ids())
    if unknown:
        raise click.BadParameter(f"There is no check {unknown[0]}.", param_hint="--ignore")
    expected = Expected(expect_gpus, expect_model)
    options = NodeOptions(level, expected, frozenset(ignore), force, python, max_seconds=max_time)
    result = check_node(options)
    line = summary_line(result, expected)
    if as_json:
        print_json({**document(result.checks), "summary": line})
    else:
        click.echo(line)
    codes = {Status.FAIL: NagiosCode.CRITICAL, Status.WARN: NagiosCode.WARNING}
    return codes.get(verdict(result.checks), NagiosCode.OK)
