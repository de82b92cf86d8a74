"""`gpumon jobs`: the training jobs of this host or of several, and whether one of them hangs."""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gpumon.cli.options import AnyDuration, debug_option, json_option
from gpumon.cli.output import print_json
from gpumon.core.problems import CommandError, ExitCode, Problem

if TYPE_CHECKING:
    from gpumon.operations.training_jobs.report import TrainingJobReport
    from gpumon.present.paint.table import Column

_DEFAULT_WIDTH: Final = 120
_MIN_WIDTH: Final = 60
_FROM_SCREEN: Final = "a gpumon that was open before has the minute before (S on the screen of the job)."


@click.command(short_help="Show training jobs, their ranks, and whether one hangs.")
@click.option("--hosts", metavar="HOST,...", help="Read these hosts through ssh instead of this one; gpumon is there.")
@click.option(
    "--dump",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write what is known of the jobs to a new folder for a bug report, without names and addresses.",
)
@click.option("--ended", is_flag=True, help="Show the jobs that have ended, by user, and their sums instead.")
@click.option(
    "--since",
    type=AnyDuration(),
    default="7d",
    metavar="DURATION",
    show_default=True,
    help="With --ended: how far back.",
)
@click.option(
    "--from",
    "source",
    envvar="GPUMON_JOBS_FROM",
    type=click.Path(path_type=Path),
    metavar="DIR|RECORDING",
    help="With --ended: a folder of gpumon recorder, or a recording.  [default: that of this host]",
)
@json_option("jobs", "Print one JSON document; missing values are null, with the reason.")
@debug_option
def jobs(  # noqa: PLR0917 - click passes them by name
    hosts: str | None, dump: Path | None, ended: bool, since: float, source: Path | None, as_json: bool
) -> int:
    """Show the distributed training jobs of this host: who runs what on which GPUs, how fast, and whether it hangs.

    Ranks of torchrun, accelerate, deepspeed, Slurm, MPI and Ray are grouped into jobs. Steps, collectives and lines of
    code come from the probe (gpumon watch); without it, NCCL and /proc show what they can.

    With --ended: GPU-hours, utilization, SM activity and memory of the jobs that gpumon recorder has seen to end.

    Exits with 1 if a job hangs, and with 3 if there is no training job.
    """
    if ended:
        from gpumon.present.text.ended import ENDED_COLUMNS

        show_ended(source, since, ENDED_COLUMNS, as_json=as_json)
        return ExitCode.OK
    if hosts is not None and dump is not None:
        raise click.UsageError("--dump is about this host; it cannot be combined with --hosts.")
    if dump is not None:
        return _dump(dump)
    if hosts is not None:
        return _show_hosts(hosts, as_json=as_json)
    from gpumon.operations.training_jobs.sample import sample_jobs

    sample = sample_jobs()
    return _show(sample.reading.reports, sample.problems, as_json=as_json)


def _show_hosts(hosts: str, *, as_json: bool) -> int:
    from gpumon.fleet.model import FleetError
    from gpumon.operations.fleet.ssh import parse_hosts
    from gpumon.operations.training_jobs.hosts import merged_jobs, read_hosts

    try:
        names = parse_hosts(hosts, None)
    except FleetError as error:
        raise CommandError(error.problem, ExitCode.USAGE) from error
    results = read_hosts(names)
    problems = [result.problem for result in results if result.problem is not None]
    return _show(merged_jobs(results), problems, as_json=as_json)


def _dump(folder: Path) -> int:
    from gpumon.operations.training_jobs.dump import FRAMES_FILE, FRAMES_SECONDS, dump_jobs

    result = dump_jobs(folder)
    click.echo(f"{folder}: {', '.join(result.files)}\n{result.removed}")
    if FRAMES_FILE in result.files:
        click.echo(f"{FRAMES_FILE} has the {FRAMES_SECONDS:.0f} s after the command started; {_FROM_SCREEN}")
    return ExitCode.OK


def _show(reports: "Sequence[TrainingJobReport]", problems: Sequence[Problem], *, as_json: bool) -> int:
    """Print the jobs; returns the exit code."""
    if as_json:
        from gpumon.operations.training_jobs.document import jobs_document

        print_json(jobs_document(reports, os.uname().nodename, problems))
    else:
        from gpumon.present.text.jobs import jobs_lines

        click.echo("\n".join(jobs_lines(reports, problems, _width())))
    if not reports:
        return ExitCode.MISSING_PREREQUISITE
    hangs = any(report.verdict is not None and report.verdict.is_hang for report in reports)
    return ExitCode.BAD_VERDICT if hangs else ExitCode.OK


def _width() -> int:
    """Cells of a line."""
    return max(_MIN_WIDTH, shutil.get_terminal_size((_DEFAULT_WIDTH, 40)).columns)


def show_ended(
    source: Path | None, since: float, columns: "Sequence[Column[Any]]", *, as_json: bool, count: int | None = None
) -> None:
    """Print jobs that have ended.

    Args:
        source: A ring or a recording; None for the ring of this host.
        since: Seconds back from now.
        columns: Columns of the table.
        as_json: Whether to print JSON.
        count: How many, or None for all with the sums of each user.
    """
    from gpumon.operations.recorder.events import ended_jobs, ended_processes
    from gpumon.present.text.ended import ended_lines, user_sums
    from gpumon.streams.ring import host_ring

    problems: list[Problem] = []
    jobs = ended_jobs(ended_processes(source or host_ring(), time.time() - since, problems))
    sums = [] if count is not None else user_sums(jobs)
    jobs = jobs if count is not None else sorted(jobs, key=lambda job: (job.user, -job.gpu_hours))
    if as_json:
        document = {"schema": 1, "jobs": [job._asdict() for job in jobs[:count]]}
        print_json({**document, **({} if count else {"users": [total._asdict() for total in sums]})})
    else:
        click.echo("\n".join(ended_lines(jobs[:count], sums, columns, _width())))
    for problem in problems:
        click.echo(f"gpumon: {problem}", err=True)
