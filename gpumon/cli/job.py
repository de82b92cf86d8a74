"""`gpumon job`: the GPUs of a job of Slurm, requested, allocated and used."""

import re
from typing import Any, Final

import click

from gpumon.cli.fleet_source import fleet_source, given_options, read_source, source_options
from gpumon.cli.options import debug_option, json_option
from gpumon.cli.output import print_json, terminal_width

_JOB_ID: Final = re.compile(r"\d{1,10}(?:[_+]\d{1,10})?", re.ASCII)


@click.command(short_help="Show the GPUs of a job of Slurm: requested, allocated, used.")
@click.argument("job_id", metavar="JOBID")
@source_options
@json_option("job", "Print one JSON document; missing values are null, with the reason.")
@debug_option
@click.pass_context
def job(context: click.Context, /, job_id: str, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - values of options
    """Show who runs a job, how many GPUs it requested, has and uses, and which ones are idle.

    The job comes from squeue and scontrol on this host, or from sacct if it has left the queue. Its GPUs come from this
    host if it runs here alone, otherwise from hosts through ssh or from Prometheus, as for gpumon fleet. Used is a GPU
    whose utilization is above 1 % now, or was within the last 30 minutes.
    """
    if not _JOB_ID.fullmatch(job_id):
        raise click.UsageError(f"{job_id!r} is not the id of a job, such as 4711 or 4711_3.", context)
    from gpumon.operations.fleet.scheduler_job import JobReport, job_document, job_report, local_snapshot
    from gpumon.operations.fleet.slurm import look_up
    from gpumon.present.text.job import job_lines

    source = fleet_source(given_options(context, options))
    known = look_up(job_id)
    has_gpus = any(entry.gpus for entry in known.jobs)
    snapshot = read_source(source) if source is not None and has_gpus else local_snapshot(known.jobs)
    reports = [job_report(entry, snapshot, problem=known.problem) for entry in known.jobs]
    reports += [JobReport(account.job, account=account) for account in known.accounts]
    if as_json:
        print_json(job_document(reports))
        return
    width = terminal_width()
    for number, report in enumerate(reports):
        click.echo("\n".join([*([""] if number else []), *job_lines(report, width)]))
