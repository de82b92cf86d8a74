"""`gpumon report`: what a run was."""

from pathlib import Path

import click

from gpumon.cli.options import debug_option, json_option
from gpumon.cli.output import print_json
from gpumon.core.problems import CommandError, ExitCode, Problem, ProblemCode


@click.command(short_help="Write a report of a run, from a recording.")
@click.argument("path", metavar="RECORDING|DIR", type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Where to write report.html, report.md and report.json.  [default: DIR, or RECORDING with -report]",
)
@click.option("--markdown", "as_markdown", is_flag=True, envvar="GPUMON_REPORT_MARKDOWN", help="Print Markdown only.")
@json_option("report", "Print one JSON document only; missing values are null.")
@debug_option
def report(path: Path, output: Path | None, as_markdown: bool, as_json: bool) -> None:
    """Write a report of a run: one HTML page that loads nothing, the same as Markdown, and as JSON.

    DIR is the folder that gpumon watch --report DIR has written, also one of a run that was killed. RECORDING is a file
    of gpumon record: its report has no steps.
    """
    from gpumon.operations.run_report.journal import load_report
    from gpumon.present.report.write import report_markdown, write_report

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
