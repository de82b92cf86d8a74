"""`gpumon why`: why the steps of a training run take as long as they do."""

import sys
from typing import TYPE_CHECKING, Final

import click

from gpumon.cli.options import Seconds, debug_option, json_option
from gpumon.cli.output import print_json, print_lines, report_width
from gpumon.core.problems import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.operations.why.examination import ExaminationProgress

_MAX_WIDTH: Final = 140


@click.command(short_help="Explain why a training run is slow.")
@click.argument("pid", type=click.IntRange(1))
@click.option(
    "--seconds",
    type=Seconds(1, 30),
    metavar="DURATION",
    help="How long to observe the process.  [default: 12, longer for slow steps]",
)
@click.option("--job", is_flag=True, help="Compare all ranks on this host of the job that PID belongs to.")
@click.option("--no-trace", is_flag=True, help="Only observe; after a trace, launches stay slower.")
@json_option("why")
@debug_option
def why(pid: int, seconds: float | None, job: bool, no_trace: bool, as_json: bool) -> int:
    """Observe the training run with PID, and account for the time of its median step.

    The process needs a probe: gpumon watch -- python train.py. The report names the causes that cost time which can
    be saved, with what was measured, the line of the program, an experiment that would prove it, and how short a step
    can become at best.

    Exit code 1: a cause was found; 0: none that costs much, or undecided; 3: no probe, or no step ended.
    """
    from gpumon.operations.why.examination import Listener
    from gpumon.operations.why.trace import examine_process

    show_progress = _show_progress if sys.stderr.isatty() and not as_json else _show_nothing
    try:
        if job:
            return _job(pid, seconds, show_progress, as_json=as_json)
        report = examine_process(pid, seconds, Listener(show_progress), has_trace=not no_trace)
    finally:
        if show_progress is _show_progress:
            click.echo("\r\x1b[K", nl=False, err=True)
    if as_json:
        from gpumon.operations.why.document import why_document

        print_json(why_document(report))
    else:
        from gpumon.present.paint.line import Role
        from gpumon.present.why import why_lines

        print_lines(why_lines(report, report_width(_MAX_WIDTH)), {Role.HEADING, Role.ACCENT})
    return ExitCode.BAD_VERDICT if report.verdict.is_decided and report.verdict.causes else ExitCode.OK


def _job(
    pid: int,
    seconds: float | None,
    show_progress: "Callable[[ExaminationProgress], None]",
    *,
    as_json: bool,
) -> int:
    from gpumon.operations.why.job import examine_job, ranks_of
    from gpumon.probe.client import ProbeWatcher

    watcher = ProbeWatcher()
    watcher.start()
    try:
        report = examine_job(ranks_of(pid, watcher), watcher, seconds, show_progress)
    finally:
        watcher.close()
    if as_json:
        from gpumon.operations.why.document import why_job_document

        print_json(why_job_document(report))
    else:
        from gpumon.present.paint.line import Role
        from gpumon.present.why import job_lines

        if show_progress is _show_progress:
            click.echo("\r\x1b[K", nl=False, err=True)
        print_lines(job_lines(report, report_width(_MAX_WIDTH)), {Role.HEADING, Role.ACCENT})
    has_cause = any(rank.verdict.is_decided and rank.verdict.causes for rank in report.ranks)
    return ExitCode.BAD_VERDICT if has_cause else ExitCode.OK


def _show_progress(progress: "ExaminationProgress") -> None:
    from gpumon.present.why import progress_text

    click.echo(f"\r\x1b[K{progress_text(progress)}", nl=False, err=True)


def _show_nothing(_: "ExaminationProgress") -> None:
    pass
