"""`gpumon empty-cache`: has a process return the memory that PyTorch caches in it to the driver."""

import sys

import click

from gpumon.cli.options import debug_option, options, read_only_option
from gpumon.core.problems import CommandError, ExitCode, ProblemCode


@click.command("empty-cache", short_help="Have a process empty its PyTorch cache.")
@click.argument("pid", type=click.IntRange(1))
@options("empty-cache")
@read_only_option
@debug_option
def empty_cache(pid: int, yes: bool, read_only: bool) -> int:
    """Have the process PID, which has a probe, call torch.cuda.empty_cache(), and print what was released.

    It waits until the GPU has finished all work of the process. Live tensors stay.
    """
    if read_only:
        raise CommandError.usage(
            ProblemCode.NO_PERMISSION, "gpumon is read-only.", "Remove --read-only or GPUMON_READ_ONLY."
        )
    from gpumon.operations import empty_cache as emptying
    from gpumon.operations.gpu_processes import Owner
    from gpumon.operations.recorded_file import connected_watcher
    from gpumon.present.process_questions import cache_question

    with connected_watcher((pid,)) as watcher:
        probe = watcher.probes[pid]
        devices = () if probe.reading is None else probe.reading.devices
        if not devices:
            raise CommandError.missing(ProblemCode.NOT_FOUND, f"PyTorch holds no GPU memory in process {pid}.")
        if not yes:
            if not sys.stdin.isatty():
                raise click.UsageError("This changes the process; without a terminal, confirm it with --yes.")
            owners = [(Owner(pid, None, probe, statistics), statistics) for statistics in devices]
            text = "\n".join(cache_question(owner, statistics, probe.process.command) for owner, statistics in owners)
            if not click.confirm(f"{text}Empty the cache?", err=True):
                return ExitCode.BAD_VERDICT
        result = emptying.empty_cache(watcher, pid)
    for statistics in devices:
        for sentence in emptying.explain_emptied(result, statistics.ordinal):
            click.echo(f"cuda:{statistics.ordinal}: {sentence}")
    return ExitCode.OK
