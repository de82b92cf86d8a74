"""`gpumon why`: why the steps of a training run take as long as they do."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gpumon.cli.attaching import attach_options, chosen_target, load_missing_probes, slower_allowed
from gpumon.cli.options import debug_option, options
from gpumon.cli.output import print_json, print_lines, report_width
from gpumon.core.problems import CommandError, ExitCode

if TYPE_CHECKING:
    from gpumon.operations.why.examination import ExaminationProgress, WhyReport
    from gpumon.operations.why.processes import JobWhyReport

_MAX_WIDTH: Final = 140


@click.command(short_help="Explain why a training run is slow.")
@click.argument("target", required=False)
@options("why")
@attach_options
@debug_option
def why(  # noqa: PLR0917 - click passes them by name
    target: str | None,
    seconds: float | None,
    job: bool,
    no_trace: bool,
    hosts: str | None,
    attach: bool,
    load_probe: str,
    as_json: bool,
) -> int:
    """Observe a training run, and account for the time of its median step.

    TARGET is a PID (of a rank, a worker of a DataLoader, or a launcher for all of its ranks) or the name of a job;
    without it, the only training run of this host. All ranks are compared if it has several.

    The report names the causes that cost time which can be saved, with what was measured, the line of the program, an
    experiment that would prove it, and how short a step can become at best. Steps come from a probe in the process: a
    process without one gets it if you agree. Otherwise the command looks from outside, and reports where the time goes
    without knowing the steps.

    With --hosts, all ranks of a job on several hosts are compared, such as those of --hosts "$SLURM_JOB_NODELIST".

    Exit code 1: a cause was found; 0: none that costs much, or undecided; 3: no such process, or no step ended.
    """
    from gpumon.operations.targets import with_all_ranks

    if hosts is not None:
        return _show(_examine_hosts(hosts, target, seconds, attach=attach), as_json=as_json)
    chosen = chosen_target(target)
    chosen = with_all_ranks(chosen) if job else chosen
    problem = load_missing_probes(chosen, attach=attach, policy=load_probe)
    if problem is not None:
        if not any(Path("/proc", str(pid)).exists() for pid in chosen.pids):
            raise CommandError(problem, ExitCode.MISSING_PREREQUISITE)
        click.echo(f"Looking from outside: {problem}", err=True)
    is_shown = sys.stderr.isatty() and not as_json
    try:
        reports = _examine(chosen.pids, seconds, is_shown=is_shown, is_outside=problem is not None, traces=not no_trace)
    finally:
        if is_shown:
            click.echo("\r\x1b[K", nl=False, err=True)
    return _show(reports, as_json=as_json)


def _examine_hosts(hosts: str, target: str | None, seconds: float | None, *, attach: bool) -> "JobWhyReport":
    from gpumon.operations.remote_command import find_hosts
    from gpumon.operations.why.hosts import examine_hosts

    if target is not None and target.isdecimal():
        raise click.UsageError("Name a job, not a PID: a PID means another process on each host.")
    arguments = [*(["--seconds", f"{seconds:g}s"] if seconds else []), *(["--attach"] if attach else [])]
    return examine_hosts(find_hosts(hosts), [*arguments, *([] if target is None else ["--", target])])


def _show(reports: "WhyReport | JobWhyReport", *, as_json: bool) -> int:
    """Print the reports; returns the exit code."""
    from gpumon.operations.why.examination import WhyReport

    _print(reports, as_json=as_json)
    ranks = (reports,) if isinstance(reports, WhyReport) else reports.ranks
    has_cause = any(rank.verdict.is_decided and rank.verdict.causes for rank in ranks)
    return ExitCode.BAD_VERDICT if has_cause else ExitCode.OK


def _examine(
    pids: "tuple[int, ...]", seconds: float | None, *, is_shown: bool, is_outside: bool, traces: bool
) -> "WhyReport | JobWhyReport":
    from gpumon.operations.why.examination import Listener
    from gpumon.operations.why.outside import examine_outside
    from gpumon.operations.why.processes import examine_job, examine_process
    from gpumon.probe.client import ProbeWatcher

    show_progress = _show_progress if is_shown else _show_nothing
    if len(pids) == 1:
        listener = Listener(show_progress, allow=slower_allowed())
        if is_outside:
            return examine_outside(pids[0], seconds, listener)
        return examine_process(pids[0], seconds, listener, has_trace=traces)
    watcher = None if is_outside else ProbeWatcher()
    try:
        if watcher is not None:
            watcher.start()
        return examine_job(pids, watcher, seconds, show_progress)
    finally:
        if watcher is not None:
            watcher.close()


def _print(report: "WhyReport | JobWhyReport", *, as_json: bool) -> None:
    from gpumon.operations.why.examination import WhyReport

    if as_json:
        from gpumon.operations.why.document import why_document, why_job_document

        print_json(why_document(report) if isinstance(report, WhyReport) else why_job_document(report))
        return
    from gpumon.present.paint.line import Role
    from gpumon.present.why import job_lines, why_lines

    width = report_width(_MAX_WIDTH)
    lines = why_lines(report, width) if isinstance(report, WhyReport) else job_lines(report, width)
    print_lines(lines, {Role.HEADING, Role.ACCENT})


def _show_progress(progress: "ExaminationProgress") -> None:
    from gpumon.present.why import progress_text

    click.echo(f"\r\x1b[K{progress_text(progress)}", nl=False, err=True)


def _show_nothing(_: "ExaminationProgress") -> None:
    pass
