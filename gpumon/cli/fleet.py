"""`gpumon fleet`: the GPUs of many hosts, from Prometheus or through ssh."""

from typing import TYPE_CHECKING, Any, Final

import click

from gpumon.cli.fleet_source import SOURCE_MISSING, fleet_source, given_options, read_source, source_options
from gpumon.cli.options import debug_option, history_option, options, screen_options
from gpumon.cli.output import print_json
from gpumon.cli.screen import has_screen, show
from gpumon.core.problems import CommandError, ExitCode
from gpumon.core.units import counted

if TYPE_CHECKING:
    from gpumon.fleet.settings import FleetSource
    from gpumon.operations.fleet.report import FleetReport

_LOCAL_SECONDS: Final = 5.0
"""Interval of this host's own GPUs, which are not what the screen was opened for."""


@click.command(short_help="Show the GPUs of many hosts, from Prometheus or through ssh.")
@source_options
@options("fleet")
@history_option
@screen_options
@debug_option
@click.pass_context
def fleet(context: click.Context, /, as_json: bool, usage: float | None, **options: Any) -> None:  # noqa: ANN401 - values of options
    """Show GPUs of many hosts that dcgm-exporter, gpumon exporter, nvidia_gpu_exporter or all-smi report to Prometheus.

    With --hosts or --hostfile, gpumon reads up to 64 hosts through ssh, which needs keys without a password; where
    gpumon is not installed, its collector runs from memory. Without a terminal, gpumon prints a summary. A token or a
    password never belongs on the command line.
    """
    source = fleet_source(given_options(context, options))
    if source is None:
        raise click.UsageError(SOURCE_MISSING, context)
    if as_json or not has_screen(reads_keys=False):
        _print(source, usage, as_json=as_json)
        return
    from gpumon.streams.live import LiveStream

    stream = LiveStream(_LOCAL_SECONDS)
    show(
        stream,
        options["theme"],
        options["mouse"],
        options["history"],
        is_read_only=False,
        fleet=source,
        opens_fleet=True,
    )


def _print(source: "FleetSource", usage_seconds: float | None, *, as_json: bool) -> None:
    """Print the fleet.

    Raises:
        CommandError: Prometheus cannot be read.
        click.UsageError: The usage is requested without Prometheus.
    """
    from gpumon.fleet.settings import FleetSettings
    from gpumon.fleet.slurm_queue import has_slurm, read_queue
    from gpumon.operations.fleet.document import fleet_document, usage_document
    from gpumon.operations.fleet.queries import read_usage, with_users
    from gpumon.operations.fleet.report import FleetReport
    from gpumon.operations.fleet.slurm import SlurmJoin
    from gpumon.present.fleet import summary_lines

    if usage_seconds is not None and not isinstance(source, FleetSettings):
        raise click.UsageError("--usage needs --prometheus: hosts have no history.")
    slurm = SlurmJoin(read_queue()) if has_slurm() else None
    report = FleetReport(read_source(source), slurm)
    if not as_json:
        click.echo("\n".join(summary_lines(report)))
        _check_hosts(report)
        return
    document = dict(fleet_document(report))
    if usage_seconds is not None and isinstance(source, FleetSettings):
        usage = read_usage(source, report.snapshot.exporters, usage_seconds)
        if usage.problem is not None:
            raise CommandError(usage.problem, ExitCode.MISSING_PREREQUISITE)
        rows = tuple(with_users(usage.rows, report.slurm_jobs))
        document["usage"] = usage_document(usage._replace(rows=rows))
    print_json(document)
    _check_hosts(report)


def _check_hosts(report: "FleetReport") -> None:
    """Exit with 3 if a host cannot be read; the output says why."""
    hosts = report.snapshot.host_problems
    if hosts:
        click.echo(f"gpumon: {counted(len(hosts), 'host')} cannot be read: {', '.join(hosts)}.", err=True)
        raise click.exceptions.Exit(ExitCode.MISSING_PREREQUISITE)
