"""`gpumon report` and `gpumon compare`: what a run was, and whether another one differs from it."""

import time
from pathlib import Path
from typing import Any

import click

from gpumon.cli.options import debug_option, options
from gpumon.cli.output import print_json
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode
from gpumon.core.units import file_stamp, parse_moment


@click.command(short_help="Write a report of a run, from a recording.")
@click.argument("path", metavar="[RECORDING|DIR]", required=False, type=click.Path(path_type=Path))
@options("report")
@debug_option
def report(  # noqa: PLR0917 - click passes them by name
    path: Path | None, output: Path | None, since: str | None, until: str | None, as_markdown: bool, as_json: bool
) -> None:
    """Write a report of a run: one HTML page that loads nothing, the same as Markdown, and as JSON.

    DIR is the folder that gpumon watch --report DIR has written, also one of a run that was killed. RECORDING is a file
    of gpumon record: its report has no steps.

    DIR may also be the folder of gpumon recorder, which is the default: what the GPUs of this host did, and which
    programs ended, in the last 24 hours or between --since and --until.
    """
    from gpumon.operations.run_report.journal import load_report
    from gpumon.present.report.write import report_markdown, write_report
    from gpumon.streams.ring import host_ring, ring_files

    if path is None or (path.is_dir() and ring_files(path)):
        document = _ring_report(path or host_ring(), since, until)
        path = Path(f"gpumon-{file_stamp()}")
    elif since is not None or until is not None:
        raise click.UsageError("--since and --until are for the folder of gpumon recorder.")
    else:
        document = load_report(path)
    if as_json:
        print_json(document)
    elif as_markdown:
        click.echo(report_markdown(document), nl=False)
    else:
        folder = output or (path if path.is_dir() else path.with_name(f"{path.name.partition('.')[0]}-report"))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_report(document, folder)
        except OSError as error:
            reason = f"{folder} cannot be written: {(error.strerror or str(error)).lower()}."
            raise CommandError(
                Problem(ProblemCode.NOT_WRITTEN, reason, "Choose another --output."), ExitCode.USAGE
            ) from None
        click.echo(f"{' '.join(document['verdict'])}\n{folder / 'report.html'}")


def _ring_report(folder: Path, since: str | None, until: str | None) -> dict[str, Any]:
    """The report of a time that the recorder has."""
    from gpumon.operations.run_report.document import report_document
    from gpumon.operations.run_report.journal import read_ring

    now = time.time()
    try:
        first, last = parse_moment(since or "24h", now), now if until is None else parse_moment(until, now)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return report_document(read_ring(folder, first, last))


@click.command(short_help="Compare two runs, and fail if one is worse.")
@click.argument("base", metavar="BASE", type=click.Path(path_type=Path))
@click.argument("new", metavar="NEW", type=click.Path(path_type=Path))
@options("compare")
@debug_option
def compare(  # noqa: PLR0917 - click passes them by name
    base: Path, new: Path, conditions: tuple[str, ...], confidence: float, as_markdown: bool, as_json: bool
) -> int:
    """Compare NEW with BASE: folders of gpumon watch --report, files report.json, recordings, or two traces.

    Step times have a confidence interval from a blocked bootstrap, which drift and outliers widen. Of traces of
    torch.profiler, the classes of the median step, and kernels and operators that were added, removed, slower or
    faster, per step.

    Exits with 0; with --fail-if, 1 if a condition is shown to hold, and 4 if that is undecided.
    """
    from gpumon.operations.run_report.document import compare_reports, differences, parse_condition
    from gpumon.operations.run_report.journal import load_report
    from gpumon.operations.trace_diff import is_trace

    traces = [path for path in (base, new) if is_trace(path)]
    if len(traces) == 1:
        other = new if traces[0] == base else base
        raise click.UsageError(f"{traces[0]} is a trace, and {other} is not: compare two traces, or two runs.")
    if traces:
        if conditions:
            raise click.UsageError("--fail-if is for runs: a trace has no intervals.")
        return _compare_traces(base, new, as_markdown=as_markdown, as_json=as_json)
    parsed = [parse_condition(text) for text in conditions]
    reports = load_report(base), load_report(new)
    comparisons = compare_reports(*reports, confidence / 100)
    changed = differences(*reports)
    states = [condition.state(comparisons) for condition in parsed]
    if as_json:
        values = [{**item._asdict(), "is_shown": item.is_shown} for item in comparisons]
        failed = [{"condition": text, "holds": state} for text, state in zip(conditions, states, strict=True)]
        print_json({"schema": 1, "values": values, "differences": changed, "conditions": failed})
    else:
        from gpumon.present.text.compare import compare_lines

        shown = compare_lines(comparisons, changed, [*zip(conditions, states, strict=True)], is_markdown=as_markdown)
        click.echo("\n".join(shown))
    undecided = ExitCode.UNDECIDED if None in states else ExitCode.OK
    return ExitCode.BAD_VERDICT if True in states else undecided


def _compare_traces(base: Path, new: Path, *, as_markdown: bool, as_json: bool) -> int:
    from gpumon.operations.trace_diff import diff_document
    from gpumon.traces.reader import read_traces

    document = diff_document(*(opened.trace for opened in read_traces(base, new)))
    if as_json:
        print_json(document)
    else:
        from gpumon.present.text.trace_diff import trace_diff_lines

        click.echo("\n".join(trace_diff_lines(document, is_markdown=as_markdown)))
    return ExitCode.OK
