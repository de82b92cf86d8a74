"""`gpumon jobs`, `gpumon job` and `gpumon hang`: training jobs, jobs of Slurm, and why one of them hung."""

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gpumon.cli.fleet_source import fleet_source, given_options, read_source, source_options
from gpumon.cli.options import debug_option, options
from gpumon.cli.output import print_json, report_width, terminal_width
from gpumon.core.problems import ExitCode, Problem

if TYPE_CHECKING:
    from gpumon.operations.training_jobs.report import TrainingJobReport
    from gpumon.present.paint.table import Column

_MAX_WIDTH: Final = 1000
_JOB_ID: Final = re.compile(r"\d{1,10}(?:[_+]\d{1,10})?", re.ASCII)
_FROM_SCREEN: Final = "a gpumon that was open before has the minute before (S on the screen of the job)."


@click.command(short_help="Show training jobs, their ranks, and whether one hangs.")
@options("jobs")
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
    from gpumon.operations.training_jobs.watcher import sample_jobs

    sample = sample_jobs()
    return _show(sample.reading.reports, sample.problems, as_json=as_json)


def _show_hosts(hosts: str, *, as_json: bool) -> int:
    from gpumon.operations.remote_command import find_hosts
    from gpumon.operations.training_jobs.hosts import merged_jobs, read_hosts

    results = read_hosts(find_hosts(hosts))
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
        from gpumon.operations.training_jobs.report import jobs_document

        print_json(jobs_document(reports, os.uname().nodename, problems))
    else:
        from gpumon.present.text.jobs import jobs_lines

        click.echo("\n".join(jobs_lines(reports, problems, report_width(120, _MAX_WIDTH))))
    if not reports:
        return ExitCode.MISSING_PREREQUISITE
    hangs = any(report.verdict is not None and report.verdict.is_hang for report in reports)
    return ExitCode.BAD_VERDICT if hangs else ExitCode.OK


@click.command(short_help="Show the GPUs of a job of Slurm: requested, allocated, used.")
@click.argument("job_id", metavar="JOBID")
@source_options
@options("job")
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


@click.command(short_help="Explain a hang from the files it has left.")
@click.argument("files", metavar="FILE...", type=click.Path(path_type=Path), nargs=-1, required=True)
@options("hang")
@debug_option
def hang(files: tuple[Path, ...], as_json: bool) -> int:
    """Name the rank that the others waited for, the collective and the line, from files that a job has left.

    FILE is a dump of PyTorch's flight recorder (pickle or JSON), a log with the text of NCCL's watchdog, stacks of
    py-spy or faulthandler, a report of NCCL's RAS service, or a folder of them; any subset will do. The rank of a dump
    or a stack is the one in the name of its file, such as nccl_trace_rank_3; compressed files are read.

    Exits with 0 if no hang is shown, 1 if one is, and 3 if no file is about the ranks of a job.
    """
    from gpumon.operations.hang_files.report import report_hang

    report = report_hang(files)
    if as_json:
        from gpumon.operations.hang_files.report import hang_document

        print_json(hang_document(report))
    else:
        from gpumon.present.text.hang import hang_lines

        click.echo("\n".join(hang_lines(report, terminal_width())))
    return ExitCode.BAD_VERDICT if report.verdict.is_hang else ExitCode.OK


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
        click.echo("\n".join(ended_lines(jobs[:count], sums, columns, report_width(120, _MAX_WIDTH))))
    for problem in problems:
        click.echo(f"gpumon: {problem}", err=True)
