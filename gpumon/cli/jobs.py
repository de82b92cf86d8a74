"""`gpumon jobs`: the training jobs of this host or of several, and whether one of them hangs."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gpumon.cli.options import debug_option, json_option, named_hosts
from gpumon.cli.output import print_json
from gpumon.core.problems import ExitCode, Problem

if TYPE_CHECKING:
    from gpumon.operations.training_jobs.report import TrainingJobReport

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
@json_option("jobs", "Print one JSON document; missing values are null, with the reason.")
@debug_option
def jobs(hosts: str | None, dump: Path | None, as_json: bool) -> int:
    """Show the distributed training jobs of this host: who runs what on which GPUs, how fast, and whether it hangs.

    Ranks of torchrun, accelerate, deepspeed, Slurm, MPI and Ray are grouped into jobs. Steps, collectives and lines of
    code come from the probe (gpumon watch); without it, NCCL and /proc show what they can.

    Exits with 1 if a job hangs, and with 3 if there is no training job.
    """
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
    from gpumon.operations.training_jobs.hosts import merged_jobs, read_hosts

    results = read_hosts(named_hosts(hosts))
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

        width = max(_MIN_WIDTH, shutil.get_terminal_size((_DEFAULT_WIDTH, 40)).columns)
        click.echo("\n".join(jobs_lines(reports, problems, width)))
    if not reports:
        return ExitCode.MISSING_PREREQUISITE
    hangs = any(report.verdict is not None and report.verdict.is_hang for report in reports)
    return ExitCode.BAD_VERDICT if hangs else ExitCode.OK
