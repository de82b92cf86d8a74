"""`gpumon pick` and `gpumon wait`: choose GPUs for a program that is about to start, or wait until a GPU is free."""

import time

import click

from gpumon.cli.options import debug_option, interval_option, options
from gpumon.cli.output import print_json
from gpumon.core.problems import ExitCode


@click.command(short_help="Wait until a GPU is free, or a process ends.")
@options("wait")
@interval_option
@debug_option
def wait(  # noqa: PLR0917 - click passes them by name
    gpu: str | None,
    free: bool,
    memory_above: float | None,
    utilization_below: float | None,
    duration: float,
    pid: int | None,
    timeout: float | None,
    interval: float,
) -> int:
    """Wait until every condition is true of every given GPU, or until a process has ended.

    Prints one sentence and exits with 0; exits with 1 after the timeout. Example: gpumon wait --gpu 3
    --utilization-below 5% --for 5m && mail -s "GPU 3 is idle" me
    """
    from gpumon.operations import wait as waiting

    conditions = [waiting.is_free()] if free else []
    conditions += [] if memory_above is None else [waiting.memory_above(memory_above)]
    conditions += [] if utilization_below is None else [waiting.utilization_below(utilization_below)]
    if (pid is None) == (not conditions) or (gpu is None) != (not conditions):
        raise click.UsageError(
            "Give --pid, or --gpu with at least one of --free, --memory-above and --utilization-below."
        )
    deadline = None if timeout is None else time.monotonic() + timeout
    if pid is not None:
        sentence = waiting.wait_for_process(pid, deadline)
    else:
        from gpumon.operations.one_shot import live_frames

        with live_frames(interval) as source:
            watch = waiting.GpuWatch(gpu or "", conditions, duration)
            sentence = waiting.wait_for_gpus(source.frames(deadline), watch)
    if sentence is None:
        click.echo("gpumon: The timeout has passed.", err=True)
        return ExitCode.BAD_VERDICT
    click.echo(sentence)
    return ExitCode.OK


@click.command(short_help="Choose free GPUs for a program.")
@options("pick")
@debug_option
def pick(  # noqa: PLR0917 - click passes them by name
    count: int,
    device: str,
    free_memory: float | None,
    idle: float | None,
    wait: bool,
    timeout: float | None,
    index: bool,
    pid: int | None,
    as_json: bool,
) -> None:
    """Print the UUIDs of free GPUs, as CUDA_VISIBLE_DEVICES expects them.

    For example: CUDA_VISIBLE_DEVICES=$(gpumon pick --count 2) python train.py

    Several GPUs are chosen with NVLink between them, where there is NVLink. Another gpumon pick of this user does not
    choose the same GPU for one minute, or until the calling process ends. Exits with 1 if too few GPUs fit.
    """
    from gpumon.operations.pick import pick_devices
    from gpumon.operations.pick_reservations import picking_process

    picked = pick_devices(
        count,
        devices=device,
        free_bytes=free_memory,
        idle_seconds=idle,
        wait_seconds=timeout if wait else 0.0,
        pid=pid or picking_process(),
    )
    if as_json:
        documents = [
            {
                "index": item.index,
                "uuid": item.uuid,
                "name": item.name,
                "memory_free_bytes": item.get("memory_free_bytes"),
            }
            for item in picked.devices
        ]
        print_json({"schema": 1, "reserved_for_pid": picked.pid, "devices": documents})
    else:
        click.echo(",".join(item.label for item in picked.devices) if index else picked.visible_devices)
