"""`gpumon workloads` and `gpumon run`: their arguments and options."""

import click

from gpumon.cli.options import debug_option, options, read_only_option
from gpumon.cli.shell_support import complete_workload


@click.command(short_help="List the workloads, or show the code of one.")
@click.argument("name", required=False, shell_complete=complete_workload)
@options("workloads")
@debug_option
def workloads(name: str | None, code: bool, as_json: bool) -> None:
    """List the workloads, or only NAME, and their parameters.

    Files that are not valid workloads are listed with the reason.
    """
    if code and (name is None or as_json):
        raise click.UsageError("--code needs the NAME of a workload, and --json has the code of all.")
    from gpumon.cli.workloads import print_code, print_workloads

    if code and name is not None:
        print_code(name)
    else:
        print_workloads(name, as_json=as_json)


@click.command(short_help="Run a workload and report its verdict.")
@click.argument("name", shell_complete=complete_workload)
@click.option(
    "--gpu",
    "--device",
    "devices",
    multiple=True,
    default=("cuda:0",),
    show_default="cuda:0; cpu on a host without a GPU",
    metavar="DEVICE",
    envvar=("GPUMON_RUN_GPU", "GPUMON_RUN_DEVICE"),
    help="cpu, cuda:N in CUDA's order, cuda:all, or an index (3), an instance (3:0), a range or a UUID; can be given "
    "several times.",
)
@options("run")
@options("plot")
@read_only_option
@debug_option
def run(  # noqa: PLR0917 - click passes them by name
    name: str,
    devices: tuple[str, ...],
    settings: tuple[str, ...],
    duration: float | None,
    python: str | None,
    yes: bool,
    as_json: bool,
    as_csv: bool,
    plot: bool | None,
    read_only: bool,
) -> int:
    """Run the workload NAME in a separate process while gpumon samples its GPU.

    Exits with 0 if the verdict is good, 1 if it is bad, 3 if the workload cannot run here.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other.")
    if duration == 0:
        raise click.BadParameter("A run of 0 seconds measures nothing.", param_hint="--duration")
    from gpumon.cli.workloads import RunOptions, refuse_if_read_only, run_workloads

    refuse_if_read_only(is_read_only=read_only)
    return run_workloads(
        RunOptions(name, devices, settings, duration, python, yes=yes, as_json=as_json, as_csv=as_csv, plot=plot)
    )
