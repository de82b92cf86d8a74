"""`gpumon hang`: why a job hung, from the files that it has left."""

from pathlib import Path

import click

from gpumon.cli.options import debug_option, json_option
from gpumon.cli.output import print_json, terminal_width
from gpumon.core.problems import ExitCode


@click.command(short_help="Explain a hang from the files it has left.")
@click.argument("files", metavar="FILE...", type=click.Path(path_type=Path), nargs=-1, required=True)
@json_option("hang")
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
